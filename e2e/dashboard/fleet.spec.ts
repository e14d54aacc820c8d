import { type Page, expect, test } from "@playwright/test";
import { busy, look, signIn } from "./page.js";
import { EdgeSite, FleetSite, tokens } from "./site.js";

function card(page: Page, edge: string) {
  return page.locator(`[data-testid="edge-card"][data-edge="${edge}"]`);
}

test("U12 J12 an Edge of a fleet that is killed turns stale, the others live on, and it comes back", async ({ page }) => {
  const edges = [await EdgeSite.open({ id: "home" }), await EdgeSite.open({ id: "lab" })];
  const [home, lab] = edges as [EdgeSite, EdgeSite];
  const fleet = await FleetSite.open(edges);
  try {
    await home.join("gpu-box");
    await lab.join("gpu-box");
    await signIn(page, fleet.dashboard, tokens.reader);
    await expect(card(page, "home")).toHaveAttribute("data-state", "live");
    await expect(card(page, "lab")).toHaveAttribute("data-state", "live");
    home.ask();
    home.ask();
    const kept = lab.ask();
    await expect(card(page, "home")).toContainText(/2\/3\s*busy/);
    await expect(card(page, "lab")).toContainText(/1\/3\s*busy/);
    await expect(page.getByTestId("busy"), "the sum of the parts").toHaveText("3/6");
    for (const colorScheme of ["light", "dark"] as const) {
      await page.emulateMedia({ colorScheme });
      await look(page, `fleet-${colorScheme}`);
    }

    await home.edge.stop("SIGKILL");
    await expect(card(page, "home")).toHaveAttribute("data-state", /stale|unreachable/);
    await expect(card(page, "home"), "what was last known is still there").toContainText(/2\/3\s*busy/);
    await expect(card(page, "lab")).toHaveAttribute("data-state", "live");
    await look(page, "fleet-stale-dark");

    // The other one is as live as before, on its own page too.
    lab.ask();
    await expect(card(page, "lab")).toContainText(/2\/3\s*busy/);
    await page.getByRole("link", { name: "lab" }).click();
    await expect(busy(page)).toHaveCount(2);
    kept.abort();
    await expect(busy(page)).toHaveCount(1);
    await page.getByRole("link", { name: "Edges" }).click();

    await home.start();
    await expect(card(page, "home")).toHaveAttribute("data-state", "live");
    await expect(card(page, "home")).toContainText(/0\/3\s*busy/);

    // The Control Plane itself goes: the whole page says so.
    await fleet.process.stop("SIGKILL");
    await expect(page.getByTestId("stale-banner")).toBeVisible();
    await expect(card(page, "lab")).toContainText(/1\/3\s*busy/);
  } finally {
    await fleet.close();
    await Promise.all(edges.map(async (e) => e.close()));
  }
});

import { mkdtempSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { type Page, expect, test } from "@playwright/test";
import { machine, signIn } from "./page.js";
import { Process } from "./process.js";

test("U01 I11 iop up prints the dashboard's address and where its token is, and both work", async ({ page }) => {
  const dir = mkdtempSync(join(tmpdir(), "iop-up-"));
  const up = new Process("up", "--simulator", "--listen", "127.0.0.1:0", "--state-dir", dir);
  try {
    const [, address] = await up.prints(/^Dashboard: (http:\S+\/dashboard\/)/);
    const [, file] = await up.prints(/^Admin token: in (.+)$/);
    const token = readFileSync(file!, "utf8").trim();
    expect(up.printed.join("\n"), "the token itself is not printed").not.toContain(token);
    await signIn(page, address!, token);
    await expect(machine(page, await firstNode(page))).toHaveAttribute("data-state", "connected");
    await page.getByRole("button", { name: /^Manage / }).click();
    await expect(page.getByRole("button", { name: /^Disable / })).toBeVisible();
  } finally {
    await up.stop();
    rmSync(dir, { recursive: true, force: true });
  }
});

async function firstNode(page: Page): Promise<string> {
  return (await page.getByTestId("machine").first().getAttribute("data-node"))!;
}

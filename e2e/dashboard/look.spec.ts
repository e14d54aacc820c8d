import { type Page, expect } from "@playwright/test";
import { busy, look, open, phone } from "./page.js";
import { type EdgeSite, test } from "./site.js";

/** A screen with something of everything: long and normal slots, waiters, an offline machine, endings, an override. */
async function scene(page: Page, site: EdgeSite): Promise<void> {
  await open(page, site);
  const first = await site.ask({ answer: 3 }).answer;
  expect(first.whole).toBe(true);
  site.ask({ long: true, client: "ci" });
  // A phone draws no single slots.
  await expect(page.getByTestId("busy")).toHaveText("1/5");
  site.ask();
  site.ask({ client: "ci" });
  site.ask({ model: "gpt-oss-120b" });
  await expect(page.getByTestId("busy")).toHaveText("4/5");
  site.ask({ long: true });
  site.ask();
  await expect(page.getByTestId("waiter")).toHaveCount(2);
  await expect(page.getByTestId("ending").first()).toBeVisible();
}

for (const colorScheme of ["light", "dark"] as const) {
  test.describe(colorScheme, () => {
    test.use({ colorScheme });

    test(`U12 U15 every page at both widths, in ${colorScheme}`, async ({ page, site }) => {
      test.setTimeout(600_000); // axe looks at everything eighteen times
      await page.goto(site.dashboard);
      await expect(page.getByTestId("login")).toBeVisible();
      await look(page, `login-${colorScheme}`);
      await scene(page, site);
      await look(page, `now-${colorScheme}`);
      for (const name of ["History", "Models", "Configuration"]) {
        await page.getByRole("link", { name }).click();
        await expect(page.getByRole("link", { name })).toHaveAttribute("aria-current", "page");
        await look(page, `${name.toLowerCase()}-${colorScheme}`);
      }
      await page.getByRole("link", { name: "Now" }).click();

      await page.getByTestId("waiter").first().getByRole("button").click();
      await expect(page.getByTestId("candidates").first()).toBeVisible();
      await look(page, `request-${colorScheme}`);
      await page.getByRole("button", { name: "Cancel request" }).click();
      await expect(page.getByTestId("confirm-dialog")).toBeVisible();
      await look(page, `confirm-${colorScheme}`);
      await page.getByRole("button", { name: "Keep as it is" }).click();
      await page.getByRole("button", { name: "Close" }).click();

      await page.getByRole("button", { name: "Manage gpu-box" }).click();
      await expect(page.getByTestId("machine-dialog")).toBeVisible();
      await look(page, `machine-${colorScheme}`);
      await page.keyboard.press("Escape");

      await page.getByRole("button", { name: "Pause" }).click();
      await site.edge.stop();
      await expect(page.getByTestId("stale-banner")).toBeVisible();
      await look(page, `stale-${colorScheme}`);
    });
  });
}

test("U12 on a phone all is there without a click, and a finger hits it", async ({ page, site }) => {
  await page.setViewportSize(phone);
  await scene(page, site);
  await expect(page.getByTestId("summary")).toBeInViewport();
  await expect(page.getByTestId("waiting")).toHaveText("2");
  await expect(page.getByTestId("oldest")).toHaveText(/^\d+s$/);
  for (const r of await page.getByTestId("waiter").all()) {
    await expect(r).toContainText(/full/);
    await expect(r).toContainText(/\d+s/);
  }
  await expect(page.locator('[data-testid="machine"][data-node="gpu-box"]')).toContainText("3/3");
  // 44 px, by the reach of a finger: what can be pressed and is no link in a text.
  const small = await page.locator("button:visible, nav a:visible").evaluateAll((all) =>
    all.map((b) => ({ name: b.textContent?.trim().slice(0, 40), height: b.getBoundingClientRect().height, width: b.getBoundingClientRect().width }))
      .filter((b) => b.height < 43.5 || b.width < 43.5));
  expect(small).toEqual([]);
  await page.mouse.wheel(0, 2000);
  await expect(page.getByTestId("summary"), "the sums stay in sight").toBeInViewport();
});

test("U16 nothing from elsewhere, nothing that the policy refuses, at most 150 KiB", async ({ page, site }) => {
  const origin = new URL(site.dashboard).origin;
  const elsewhere: string[] = [];
  const complaints: string[] = [];
  let bytes = 0;
  page.on("request", (r) => {
    if (new URL(r.url()).origin !== origin) {
      elsewhere.push(r.url());
    }
  });
  page.on("console", (m) => {
    if (/content.security.policy/i.test(m.text()) || m.type() === "error") {
      // A token is asked for only after a call without one was refused.
      if (!m.text().includes("401")) {
        complaints.push(m.text());
      }
    }
  });
  page.on("pageerror", (e) => complaints.push(e.message));
  await page.addInitScript(() => {
    addEventListener("securitypolicyviolation", (e) => console.error(`content security policy: ${e.violatedDirective} ${e.blockedURI}`));
  });
  page.on("response", async (r) => {
    if (new URL(r.url()).pathname.startsWith("/dashboard/")) {
      const size = await r.request().sizes();
      bytes += size.responseBodySize;
    }
  });
  await scene(page, site);
  for (const name of ["History", "Models", "Configuration", "Now"]) {
    await page.getByRole("link", { name }).click();
    await expect(page.getByRole("link", { name })).toHaveAttribute("aria-current", "page");
  }
  await page.getByTestId("waiter").first().getByRole("button").click();
  await expect(page.getByTestId("candidates").first()).toBeVisible();
  expect(elsewhere).toEqual([]);
  expect(complaints).toEqual([]);
  await expect.poll(() => bytes).toBeGreaterThan(10 << 10);
  console.log(`U16: the page took ${(bytes / 1024).toFixed(1)} KiB (limit 150)`);
  expect(bytes).toBeLessThanOrEqual(150 << 10);

  // The policy is in force: an inline script would not run.
  const ran = await page.evaluate(() => {
    const script = document.createElement("script");
    script.textContent = "window.ran = true";
    document.body.append(script);
    return (window as unknown as { ran?: boolean }).ran === true;
  });
  expect(ran).toBe(false);
});

test("U15 a request is found, read and cancelled by keyboard alone", async ({ page, site }) => {
  await open(page, site);
  site.ask();
  await expect(busy(page)).toHaveCount(1);
  const tabTo = async (name: RegExp) => {
    for (let i = 0; i < 60; i++) {
      await page.keyboard.press("Tab");
      const label = await page.evaluate(() => document.activeElement?.getAttribute("aria-label") ?? document.activeElement?.textContent ?? "");
      if (name.test(label)) {
        return;
      }
    }
    throw new Error(`Tab never comes to ${name}`);
  };
  await tabTo(/^Slot of gpu-box\/vllm/);
  const ring = await page.evaluate(() => {
    const style = getComputedStyle(document.activeElement!);
    return style.outlineStyle !== "none" || style.boxShadow !== "none";
  });
  expect(ring, "the focus is seen").toBe(true);
  await page.keyboard.press("Enter");
  await expect(page.getByTestId("request-dialog")).toBeVisible();
  await tabTo(/^Cancel request$/);
  await page.keyboard.press("Enter");
  await expect(page.getByTestId("confirm-dialog")).toBeVisible();
  await tabTo(/^Cancel request$/);
  await page.keyboard.press("Enter");
  await expect(page.getByTestId("confirm-dialog")).toHaveCount(0);
  await expect(busy(page)).toHaveCount(0);
  await page.keyboard.press("Escape");
  await expect(page.getByTestId("request-dialog")).toHaveCount(0);
});

import { AxeBuilder } from "@axe-core/playwright";
import { type Locator, type Page, expect } from "@playwright/test";
import { artefacts } from "./playwright.config.js";
import { type EdgeSite, tokens } from "./site.js";

export const desktop = { width: 1440, height: 900 };
export const phone = { width: 390, height: 844 };

/** Signs in at a dashboard and waits for its data. */
export async function signIn(page: Page, address: string, token: string = tokens.admin): Promise<void> {
  await page.goto(address);
  await page.getByLabel("Access token").fill(token);
  await page.getByRole("button", { name: "Sign in" }).click();
  await expect(page.getByTestId("site")).toHaveAttribute("data-connection", "live");
}

/** Signs in as an admin at an Edge. */
export async function open(page: Page, site: EdgeSite): Promise<void> {
  await signIn(page, site.dashboard);
}

/** Slots that hold a request. */
export function busy(page: Page): Locator {
  return page.locator('[data-testid="slot"]:not([data-state="free"])');
}

/** Slots that hold none. */
export function free(page: Page): Locator {
  return page.locator('[data-testid="slot"][data-state="free"]');
}

/** A provider's part of the page. */
export function provider(page: Page, node: string, id: string): Locator {
  return page.locator(`[data-testid="provider"][data-node="${node}"][data-provider="${id}"]`);
}

/** A machine's part of the page. */
export function machine(page: Page, node: string): Locator {
  return page.locator(`[data-testid="machine"][data-node="${node}"]`);
}

/** Keeps how the page looks at both widths, and finds fault with neither. */
export async function look(page: Page, name: string): Promise<void> {
  for (const [width, size] of [["phone", phone], ["desktop", desktop]] as const) {
    await page.setViewportSize(size);
    await expect.poll(async () => page.evaluate(() => innerWidth)).toBe(size.width);
    await page.screenshot({ path: `${artefacts}/${name}-${width}.png` });
    const found = await new AxeBuilder({ page }).analyze();
    expect(found.violations.map((v) => `${v.id}: ${v.help}: ${v.nodes.map((n) => n.html).join(" ")}`), `${name} at ${width}`).toEqual([]);
    expect(await page.evaluate(() => document.documentElement.scrollWidth - innerWidth), `${name} at ${width} scrolls sideways`).toBeLessThanOrEqual(0);
  }
}

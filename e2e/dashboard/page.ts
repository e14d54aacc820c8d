import { type Locator, type Page, expect } from "@playwright/test";
import { type EdgeSite, tokens } from "./site.js";

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

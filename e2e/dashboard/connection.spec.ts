import { type Page, expect } from "@playwright/test";
import { busy, free, machine, open } from "./page.js";
import { type EdgeSite, test } from "./site.js";

/** Clocks of this process and of the page are one: the machine's. */
async function shownAt(page: Page, what: string): Promise<number> {
  return page.waitForFunction((selector) => (document.querySelector(selector) ? Date.now() : false), what, { polling: "raf", timeout: 60_000 })
    .then(async (handle) => handle.jsonValue() as Promise<number>);
}

const staleBanner = '[data-testid="stale-banner"]';

test("U12 an Edge that is killed shows as stale, and the page comes back by itself", async ({ page, site }) => {
  await open(page, site);
  const call = site.ask();
  await expect(busy(page)).toHaveCount(1);

  const shown = shownAt(page, staleBanner);
  await site.edge.stop("SIGKILL");
  const lost = Date.now();
  const ms = (await shown) - lost;
  console.log(`U12: stale banner ${ms} ms after an Edge was killed (goal 3000)`);
  expect(ms).toBeLessThan(6000); // loose: the machine is shared
  await expect(page.getByTestId("site")).toHaveAttribute("data-connection", "stale");
  await expect(busy(page), "what was last known is still to be read").toHaveCount(1);
  expect((await call.answer).whole).toBe(false);

  await site.start();
  await expect(page.getByTestId("site")).toHaveAttribute("data-connection", "live");
  await expect(page.locator(staleBanner)).toHaveCount(0);
  // It is another process: nothing runs, and the nodes find it by themselves.
  await expect(machine(page, "gpu-box")).toHaveAttribute("data-state", "connected");
  await expect(busy(page)).toHaveCount(0);
  site.ask();
  await expect(busy(page)).toHaveCount(1);
});

test("U12 a network that falls silent shows as stale within seconds", async ({ page, site }) => {
  await open(page, site);
  const shown = shownAt(page, staleBanner);
  const lost = Date.now();
  site.stall();
  const ms = (await shown) - lost;
  console.log(`U12: stale banner ${ms} ms after the network fell silent (goal 3000)`);
  expect(ms).toBeLessThan(6000); // loose: the machine is shared
  site.flow();
  await expect(page.getByTestId("site")).toHaveAttribute("data-connection", "live");
  await expect(page.locator(staleBanner)).toHaveCount(0);
});

test("U12 from event to pixel", async ({ page, site }) => {
  await open(page, site);
  const took: number[] = [];
  for (let i = 0; i < 20; i++) {
    const filled = shownAt(page, '[data-testid="slot"]:not([data-state="free"])');
    const call = site.ask();
    took.push((await filled) - call.sent);
    const drained = page.waitForFunction(() => (document.querySelector('[data-testid="slot"]:not([data-state="free"])') ? false : Date.now()), undefined, {
      polling: "raf", timeout: 60_000,
    });
    const left = Date.now();
    call.abort();
    took.push(((await (await drained).jsonValue()) as number) - left);
  }
  took.sort((a, b) => a - b);
  const p95 = took[Math.ceil(took.length * 0.95) - 1]!;
  console.log(`U12: event to pixel, ${took.length} events: p50 ${took[took.length / 2]} ms, p95 ${p95} ms (goal 500)`);
  expect(p95).toBeLessThan(1000); // loose: the machine is shared
});

test("U14 a hidden tab holds no stream, and ten tabs over HTTP/1.1 load", async ({ context, site }) => {
  const pages: Page[] = [];
  for (let i = 0; i < 10; i++) {
    const page = await context.newPage();
    await open(page, site);
    await expect.poll(() => site.watches).toBe(1);
    pages.push(page);
    await hide(page, true);
    await expect.poll(() => site.watches).toBe(0);
  }
  // Each shows the present state once it is looked at again.
  site.ask();
  for (const page of [pages[0]!, pages[9]!]) {
    await hide(page, false);
    await expect(busy(page)).toHaveCount(1);
    await expect(page.getByTestId("site")).toHaveAttribute("data-connection", "live");
  }
  expect(site.watches).toBe(2);
});

/** Puts a tab into the background or back: the browser of a test has all of them in sight. */
async function hide(page: Page, hidden: boolean): Promise<void> {
  await page.evaluate((now) => {
    Object.defineProperty(document, "visibilityState", { configurable: true, get: () => (now ? "hidden" : "visible") });
    Object.defineProperty(document, "hidden", { configurable: true, get: () => now });
    document.dispatchEvent(new Event("visibilitychange"));
  }, hidden);
}

test.describe("with many machines", () => {
  test.use({ layout: { more: 30 } });

  test("U13 updates move neither focus, scroll, selection nor the order of machines", async ({ page, site }) => {
    await open(page, site);
    const order = async () => page.getByTestId("machine").evaluateAll((all) => all.map((m) => m.getAttribute("data-node")));
    const before = await order();
    expect(before).toHaveLength(33);

    site.ask({ client: "ci" });
    await expect(busy(page)).toHaveCount(1);
    const place = async () =>
      page.evaluate(() => ({
        focus: document.activeElement?.closest('[data-testid="slot"]')?.getAttribute("data-seq") ?? "", scroll: scrollY,
        selected: getSelection()!.toString().trim(),
      }));

    // The focus on a slot, and the page scrolled.
    await busy(page).first().focus();
    await page.evaluate(() => scrollTo(0, 200));
    const focused = await place();
    expect(focused).toEqual({ focus: expect.stringMatching(/^\d+$/), scroll: 200, selected: "" });
    await churn(page, site);
    expect(await place()).toEqual(focused);

    // A machine's name selected, from where a reader copies it; that takes the focus.
    await page.evaluate(() => {
      (document.activeElement as HTMLElement | null)?.blur();
      getSelection()!.selectAllChildren(document.querySelector('[data-testid="machine"][data-node="studio"] h3')!);
      scrollTo(0, 200);
    });
    const selected = await place();
    expect(selected).toEqual({ focus: "", scroll: 200, selected: expect.stringContaining("studio") });
    await churn(page, site);
    expect(await place()).toEqual(selected);

    await site.node("studio").stop("SIGTERM");
    await expect(machine(page, "studio")).toHaveAttribute("data-state", "offline");
    expect(await order()).toEqual(before);
  });
});

/** Has requests come and go, and waits until the page has shown it. */
async function churn(page: Page, site: EdgeSite): Promise<void> {
  const calls = [site.ask(), site.ask(), site.ask(), site.ask(), site.ask({ model: "gpt-oss-120b" })];
  await expect(page.getByTestId("waiter")).toHaveCount(2);
  await expect(busy(page)).toHaveCount(4);
  for (const call of calls) {
    call.abort();
  }
  await expect(page.getByTestId("waiter")).toHaveCount(0);
  await expect(busy(page)).toHaveCount(1);
}

test.describe("with every machine there", () => {
  test.use({ layout: { complete: true } });

  test("U13 the first alert moves nothing", async ({ page, site }) => {
    await open(page, site);
    await expect(page.getByTestId("alert")).toHaveCount(0);
    const top = async () => (await machine(page, "studio").boundingBox())?.y;
    const before = await top();
    await site.node("studio").stop("SIGTERM");
    await expect(page.getByTestId("alert")).toHaveCount(1);
    expect(await top()).toBe(before);
  });
});

test("U13 a dialog keeps its focus while the page behind it changes", async ({ page, site }) => {
  await open(page, site);
  await page.getByRole("button", { name: "Manage gpu-box" }).click();
  const button = page.getByRole("button", { name: "Drain gpu-box/vllm" });
  await button.focus();
  const call = site.ask();
  await expect(page.getByTestId("machine-dialog")).toContainText(/1 of 3 taken/);
  await expect(button).toBeFocused();
  call.abort();
  await expect(page.getByTestId("machine-dialog")).toContainText(/0 of 3 taken/);
  await expect(button).toBeFocused();
  await page.keyboard.press("Escape");
  await expect(page.getByRole("button", { name: "Manage gpu-box" })).toBeFocused();
});

test("U13 Pause holds the screen, and Resume shows the present", async ({ page, site }) => {
  await open(page, site);
  await page.getByRole("button", { name: "Pause" }).click();
  await expect(page.getByTestId("site")).toHaveAttribute("data-connection", "paused");
  const revision = await page.getByTestId("site").getAttribute("data-revision");
  const call = site.ask();
  // A second page shows that the Edge has told of it.
  const other = await page.context().newPage();
  await open(other, site);
  await expect(busy(other)).toHaveCount(1);
  await other.close();
  await expect(free(page)).toHaveCount(5);
  await expect(page.getByTestId("site")).toHaveAttribute("data-revision", revision!);
  await page.getByRole("button", { name: "Resume" }).click();
  await expect(busy(page)).toHaveCount(1);
  await expect(page.getByTestId("site")).toHaveAttribute("data-connection", "live");
  call.abort();
  await expect(busy(page)).toHaveCount(0);
});

import { type Page, expect } from "@playwright/test";
import { requestOf, snapshot } from "./api.js";
import { busy, free, machine, open, provider, signIn } from "./page.js";
import { test, tokens } from "./site.js";

test("U09 U12 slots fill and drain, and every number on the screen adds up", async ({ page, site }) => {
  await open(page, site);
  await expect(busy(page)).toHaveCount(0);
  await expect(free(page)).toHaveCount(5);
  await watchSums(page);

  const calls = [site.ask(), site.ask(), site.ask({ client: "ci" }), site.ask({ model: "gpt-oss-120b" })];
  await expect(busy(page)).toHaveCount(4);
  await expect(page.getByTestId("busy")).toHaveText("4/5");
  await expect(busy(page).filter({ hasText: "laptop" })).toHaveCount(3);
  await expect(busy(page).filter({ hasText: "ci" })).toHaveCount(1);
  await expect(busy(page).and(page.locator('[data-state="streaming"]'))).toHaveCount(4);

  const waiting = [site.ask(), site.ask(), site.ask()];
  await expect(page.getByTestId("waiter")).toHaveCount(3);
  await expect(page.getByTestId("waiting")).toHaveText("3");

  // The first one goes: the next one has its slot, and two still wait.
  calls[0]!.abort();
  await expect(page.getByTestId("waiter")).toHaveCount(2);
  await expect(busy(page)).toHaveCount(4);
  await expect(page.getByTestId("ending").first()).toBeVisible();

  for (const call of [...waiting, ...calls]) {
    call.abort();
  }
  await expect(busy(page)).toHaveCount(0);
  await expect(page.getByTestId("busy")).toHaveText("0/5");
  await expect(page.getByTestId("waiting")).toHaveText("0");
  await expect(page.getByTestId("waiter")).toHaveCount(0);
  const wrong = await page.evaluate(() => (window as unknown as { sums: { looks: number; wrong: string[] } }).sums);
  expect(wrong.looks, "the page was looked at as it changed").toBeGreaterThan(3);
  expect(wrong.wrong).toEqual([]);
});

/** Has the page compare, at each change of what it shows, its sums with what is drawn. */
async function watchSums(page: Page): Promise<void> {
  await page.evaluate(() => {
    const sums = { looks: 0, wrong: [] as string[] };
    (window as unknown as { sums: typeof sums }).sums = sums;
    const text = (id: string) => document.querySelector(`[data-testid="${id}"]`)?.textContent ?? "";
    new MutationObserver(() => {
      sums.looks++;
      const slots = [...document.querySelectorAll('[data-testid="slot"]')];
      const held = slots.filter((s) => s.getAttribute("data-state") !== "free").length;
      // A row whose request has gone stays only while it has the focus.
      const waiters = document.querySelectorAll('[data-testid="waiter"]').length;
      if (text("busy") !== `${held}/${slots.length}` || text("waiting") !== `${waiters}`) {
        sums.wrong.push(`busy ${text("busy")}, drawn ${held}/${slots.length}; waiting ${text("waiting")}, drawn ${waiters}`);
      }
    }).observe(document.body, { childList: true, subtree: true, characterData: true, attributes: true });
  });
}

test("U06 U08 U12 who waits, why, and what will let it go, without a click and in the words of the API", async ({ page, site }) => {
  await open(page, site);
  site.ask({ id: "long-1", long: true, client: "ci" });
  await expect(page.locator('[data-testid="slot"][data-class="long"]')).toHaveCount(1);
  site.ask({ id: "normal-1" });
  await expect(busy(page)).toHaveCount(2);
  site.ask({ id: "long-2", long: true });
  const second = await requestOf(site, "long-2", (r) => r.reason === "long_full");

  const row = page.locator(`[data-testid="waiter"][data-seq="${second.enqueueSeq}"]`);
  await expect(row).toHaveAttribute("data-reason", "long_full");
  await expect(row).toContainText("long_full");
  await expect(row).toContainText("laptop");
  await expect(row).toContainText("qwen3-32b");
  await expect(row).toContainText(second.sentence!);
  await expect(row).toContainText(second.unblocker!);
  expect(second.unblocker).toContain("ci");

  // A free slot beside a queue says why nobody takes it.
  const vllm = provider(page, "gpu-box", "vllm");
  await expect(vllm.locator('[data-testid="slot"][data-state="free"]')).toHaveCount(1);
  const told = (await snapshot(site)).nodes[0]!.providers[0]!.idleBecause!;
  expect(told).not.toBe("");
  await expect(vllm.getByTestId("idle-because")).toContainText(told);

  site.ask({ id: "normal-2" });
  await expect(busy(page)).toHaveCount(3);
  site.ask({ id: "normal-3" });
  site.ask({ id: "normal-4" });
  for (const id of ["normal-3", "normal-4"]) {
    const r = await requestOf(site, id, (one) => one.state === "waiting");
    const one = page.locator(`[data-testid="waiter"][data-seq="${r.enqueueSeq}"]`);
    await expect(one).toHaveAttribute("data-reason", r.reason!);
    await expect(one).toContainText(r.sentence!);
    await expect(one).toContainText(r.unblocker!);
  }
  await expect(page.getByTestId("waiter")).toHaveCount(3);
  const order = await page.getByTestId("waiter").evaluateAll((rows) => rows.map((r) => Number(r.getAttribute("data-seq"))));
  expect(order).toEqual(order.toSorted((a, b) => a - b));
});

test("U07 the record of a request has its candidates and why each was passed over", async ({ page, site }) => {
  await open(page, site);
  for (const id of ["a", "b", "c"]) {
    site.ask({ id });
  }
  await expect(busy(page)).toHaveCount(3);
  site.ask({ id: "waits" });
  const r = await requestOf(site, "waits", (one) => one.reason === "full");
  await page.locator(`[data-testid="waiter"][data-seq="${r.enqueueSeq}"]`).getByRole("button").click();
  const dialog = page.getByRole("dialog", { name: `Request #${r.enqueueSeq}` });
  const candidates = dialog.getByTestId("candidates").first();
  await expect(candidates).toContainText("gpu-box/vllm");
  await expect(candidates).toContainText("3/3");
  await expect(candidates).toContainText("full");
  await expect(candidates).toContainText("All of its slots are taken.");
  await expect(dialog.locator('[data-testid="moment"][data-kind="enqueue"]')).toHaveCount(1);
  await expect(dialog).toContainText(r.sentence!);

  // One that runs gets the moment of its grant, from the slot itself.
  await dialog.getByRole("button", { name: "Close" }).click();
  await expect(dialog).toHaveCount(0);
  await busy(page).first().click();
  await expect(page.getByTestId("request-dialog").locator('[data-testid="moment"][data-kind="grant"]')).toHaveCount(1);
});

test("a provider is disabled, after a question, and enabled again", async ({ page, site }) => {
  await open(page, site);
  const vllm = provider(page, "gpu-box", "vllm");
  await page.getByRole("button", { name: "Manage gpu-box" }).click();
  const dialog = page.getByTestId("machine-dialog");
  await dialog.getByRole("button", { name: "Disable gpu-box/vllm" }).click();
  await page.getByRole("button", { name: "Keep as it is" }).click();
  await expect(page.getByTestId("confirm-dialog")).toHaveCount(0);
  expect((await snapshot(site)).nodes[0]!.providers[0]!.excludedReason ?? "").toBe("");

  await dialog.getByRole("button", { name: "Disable gpu-box/vllm" }).click();
  await page.getByTestId("confirm").click();
  await expect(page.getByTestId("confirm-dialog")).toHaveCount(0);
  await expect(vllm).toHaveAttribute("data-excluded", "disabled");
  await expect(dialog).toContainText("by me");
  await expect(page.getByTestId("busy")).toHaveText("0/2");
  const refused = await site.ask({ answer: 1 }).answer;
  expect(refused.status).toBe(503);
  expect(refused.body).toContain("provider_unavailable");

  await dialog.getByRole("button", { name: "Enable gpu-box/vllm" }).click();
  await page.getByTestId("confirm").click();
  await expect(vllm).toHaveAttribute("data-excluded", "");
  await dialog.getByRole("button", { name: "Reset gpu-box/vllm" }).click();
  await page.getByTestId("confirm").click();
  await expect(dialog.getByRole("button", { name: "Reset gpu-box/vllm" })).toBeDisabled();
  await expect(page.getByTestId("busy")).toHaveText("0/5");
  const served = await site.ask({ answer: 1 }).answer;
  expect(served.status).toBe(200);
  const audited = site.edge.log.filter((e) => JSON.stringify(e).includes("gpu-box") && JSON.stringify(e).includes('"me"'));
  expect(audited.length, "the log names whose token it was").toBeGreaterThanOrEqual(3);
});

test("a request is cancelled and its client is told", async ({ page, site }) => {
  await open(page, site);
  const running = [site.ask({ id: "runs" }), site.ask(), site.ask()];
  const runs = await requestOf(site, "runs", (r) => r.state === "streaming");
  const waiting = site.ask({ id: "waits" });
  const waits = await requestOf(site, "waits", (r) => r.state === "waiting");

  const cancel = async (seq: string) => {
    const dialog = page.getByRole("dialog", { name: `Request #${seq}` });
    await dialog.getByRole("button", { name: "Cancel request" }).click();
    await page.getByTestId("confirm").click();
    await expect(page.getByTestId("confirm-dialog")).toHaveCount(0);
    await dialog.getByRole("button", { name: "Close" }).click();
  };
  await page.locator(`[data-testid="waiter"][data-seq="${waits.enqueueSeq}"]`).getByRole("button").click();
  await cancel(waits.enqueueSeq);
  const refused = await waiting.answer;
  expect(refused.status).toBe(502);
  expect(refused.body).toContain("cancelled at the server");
  await expect(page.getByTestId("waiter")).toHaveCount(0);

  await page.locator(`[data-testid="slot"][data-seq="${runs.enqueueSeq}"]`).click();
  await cancel(runs.enqueueSeq);
  const cut = await running[0]!.answer;
  expect(cut.status).toBe(200);
  expect(cut.body).toContain("cancelled at the server");
  expect(cut.body).not.toContain("[DONE]");
  await expect(busy(page)).toHaveCount(2);
  await expect(page.locator('[data-testid="ending"][data-outcome="cancelled"]').first()).toBeVisible();
});

test("U10 J12 a machine that has gone, or is silent, is shown so, in its place, as the API has it", async ({ page, site }) => {
  await open(page, site);
  const box = machine(page, "gpu-box");
  await expect(box).toHaveAttribute("data-state", "connected");
  const names = () => page.getByTestId("machine").evaluateAll((all) => all.map((m) => m.getAttribute("data-node")));
  expect(await names()).toEqual(["gpu-box", "studio", "nas"]);

  site.node("studio").freeze();
  await expect(machine(page, "studio")).toHaveAttribute("data-state", "late");
  await expect(page.locator('[data-testid="alert"][data-kind="late"]')).toContainText("studio late");
  site.node("studio").thaw();
  await expect(machine(page, "studio")).toHaveAttribute("data-state", "connected");

  await site.node("gpu-box").stop("SIGTERM");
  const gone = Date.now();
  await expect(box).toHaveAttribute("data-state", "offline");
  const shown = Date.now() - gone;
  console.log(`U10: a clean close shows within ${shown} ms of the process's end (goal 1000)`);
  expect(shown).toBeLessThan(5000); // loose: the machine is shared
  await expect(page.locator('[data-testid="alert"][data-kind="offline"]').filter({ hasText: "gpu-box" })).toContainText("3 slots out");
  await expect(page.getByTestId("busy")).toHaveText("0/2");
  expect(await names()).toEqual(["gpu-box", "studio", "nas"]);
  expect((await snapshot(site)).nodes.map((n) => n.state)).toEqual(["offline", "connected", "never"]);
  await page.getByRole("button", { name: "Manage gpu-box" }).click();
  await expect(page.getByTestId("machine-dialog")).toContainText(/\d+s ago/);
  await page.keyboard.press("Escape");

  await site.join("gpu-box");
  await expect(box).toHaveAttribute("data-state", "connected");
});

test("J11 what an Edge does not know is shown as unknown, and the rest is there", async ({ page, site }) => {
  await open(page, site);
  await page.getByRole("button", { name: "Manage nas" }).click();
  const dialog = page.getByTestId("machine-dialog");
  await expect(dialog).toContainText(/Version\s*unknown/);
  await expect(dialog).toContainText(/Platform\s*unknown/);
  await expect(dialog).toContainText(/Last heard of\s*never/);
  await expect(dialog).toContainText("llama-70b");
  await expect(page.locator("body")).not.toContainText(/undefined|NaN|null|\[object/);
  await page.keyboard.press("Escape");
  await page.getByRole("link", { name: "Models" }).click();
  await expect(page.getByTestId("models")).toContainText("llama-70b");
  await expect(page.locator("body")).not.toContainText(/undefined|NaN|null|\[object/);
});

test("I11 with keys on there is a way in: a token as Bearer, which an API key is not", async ({ page, site }) => {
  await page.goto(site.dashboard);
  for (const wrong of ["no-token-at-all", tokens.laptop]) {
    await page.getByLabel("Access token").fill(wrong);
    await page.getByRole("button", { name: "Sign in" }).click();
    await expect(page.getByRole("alert")).toContainText("not accepted");
    await expect(page.getByTestId("site")).toHaveCount(0);
  }
  const sent = page.waitForRequest((r) => r.url().endsWith("/WatchEdgeNodeSnapshot") && r.headers()["authorization"] === `Bearer ${tokens.reader}`);
  await signIn(page, site.dashboard, tokens.reader);
  await sent;
  await expect(machine(page, "gpu-box")).toBeVisible();
  expect(page.url(), "no token in the address").not.toContain(tokens.reader);

  // A reader looks and changes nothing.
  await page.getByRole("button", { name: "Manage gpu-box" }).click();
  await expect(page.getByTestId("machine-dialog").getByTestId("read-only")).toBeVisible();
  await expect(page.getByRole("button", { name: "Disable gpu-box/vllm" })).toHaveCount(0);
  await page.keyboard.press("Escape");
  await page.reload();
  await expect(page.getByTestId("site")).toHaveAttribute("data-connection", "live");
  await page.getByRole("button", { name: "Sign out" }).click();
  await expect(page.getByTestId("login")).toBeVisible();
  await page.reload();
  await expect(page.getByTestId("login")).toBeVisible();
});

test("U19 a bad file leaves the old configuration in force, and the page says so", async ({ page, site }) => {
  await open(page, site);
  await page.getByRole("link", { name: "Configuration" }).click();
  await expect(page.getByTestId("config-revision")).toHaveText("1");
  site.rewrite("bogus: 1\n");
  await page.getByRole("button", { name: "Reload" }).click();
  await page.getByTestId("confirm").click();
  await expect(page.getByTestId("config-result")).toContainText("bogus");
  await expect(page.locator('[data-testid="alert"][data-kind="refresh"]')).toContainText("bogus");
  await expect(page.locator('[data-testid="refresh"][data-error="yes"]').first()).toBeVisible();
  await expect(page.getByTestId("config-revision")).toHaveText("1");

  site.rewrite('  - {id: late-comer, token_sha256: "411aef1cd40386a145545e71497c17773b01cee947d867079e4c499db71e8321"}\n');
  await page.getByRole("button", { name: "Reload" }).click();
  await page.getByTestId("confirm").click();
  await expect(page.getByTestId("config-revision")).toHaveText("2");
  await expect(page.locator('[data-testid="alert"][data-kind="refresh"]')).toHaveCount(0);
  await page.getByRole("link", { name: "Now" }).click();
  await expect(machine(page, "late-comer")).toBeVisible();
});

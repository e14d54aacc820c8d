import { defineConfig } from "@playwright/test";

/** Where screenshots and what is left of failures go; CI keeps it. */
export const artefacts = process.env["CI_ARTEFACTS"] ?? new URL("artefacts", import.meta.url).pathname;

// One at a time: each test has processes of its own, and the machine may be small.
// Every wait is for a state, as long as that takes; none is for a time.
export default defineConfig({
  testDir: ".",
  outputDir: `${artefacts}/failures`,
  workers: 1,
  forbidOnly: true,
  timeout: 180_000,
  expect: { timeout: 30_000 },
  reporter: [["list"], ["json", { outputFile: process.env["IOP_REPORT"] ?? `${artefacts}/report.json` }]],
  use: {
    browserName: "chromium",
    viewport: { width: 1440, height: 900 },
    actionTimeout: 30_000,
    navigationTimeout: 30_000,
    screenshot: "only-on-failure",
    launchOptions: { executablePath: process.env["CHROMIUM"] ?? "/usr/bin/chromium" },
  },
});

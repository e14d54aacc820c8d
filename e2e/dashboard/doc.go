// Package dashboard drives the dashboard in a real Chromium against real Edge,
// Node and Control Plane processes. The scenarios are Playwright's, in *.spec.ts:
// `make e2e-dashboard` sets up what they need and runs them, and the tests here
// give each its name and result.
//
// It owns whatever only a browser can show: what is on the screen, where the focus
// is, which streams a tab holds. What the numbers should be is the business of
// services/control.
package dashboard

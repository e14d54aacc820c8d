// Package eventstest saturates an event bus for good, for tests: nothing that must
// be right depends on an event being delivered (S02, S09, S13).
//
// With IOP_TEST_EVENTS=blocked in the environment the test harnesses put
// subscribers on their bus that never read, and fill it before anything happens. The
// tests are the same, and must pass all the same. It knows no test framework.
package eventstest

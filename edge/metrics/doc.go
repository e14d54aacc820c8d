// Package metrics is what an Edge shows to Prometheus: gauges and totals of the core, the node link and the configuration, computed at the
// scrape from one State, and counters and histograms of how requests went.
//
// Every label has a bounded set of values: models and providers are configured ones, all else is "unknown"; reasons, outcomes and codes are
// closed lists. There is none for clients: who asked is in the log.
//
// It must not know how a request is carried or over which wire a node comes, and nothing depends on it.
package metrics

// Package estimate prices a request body in input tokens, from the raw bytes and in one pass, to choose its context class (L04).
//
// It owns the price table. The estimate errs upwards: taking a long slot without need costs some waiting, taking a normal one with a
// 200k-token prompt tramples everybody's. Everything that becomes prompt is counted (messages of all roles, tool schemas, tool-call
// arguments, metadata), output length, thinking budgets and sampling settings are not.
//
// It must not know models, providers or tokenizers, and never decides anything but the class.
package estimate

// Package estimate prices a request body in input tokens, from the raw bytes and in one pass, to choose its context class (L04).
//
// It owns the price table and the calibration. The estimate errs upwards: taking a long slot without need costs some waiting, taking a normal one with a
// 200k-token prompt tramples everybody's. Everything that becomes prompt is counted (messages of all roles, tool schemas, tool-call
// arguments, metadata), output length, thinking budgets and sampling settings are not.
//
// The table (prices.bin, made by ./fit) prices each byte by the one before it. Numbers cost what models that read them digit by digit make of them, or
// nearly. What providers then count themselves is held against the estimate for each served target and kind of text: [Calibration].
//
// It must not know models or providers, and never decides anything but the class.
package estimate

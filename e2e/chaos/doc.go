//go:build linux

// Command chaos runs a real Edge, real Nodes and many clients while it breaks
// everything around them, and then asks whether the promises were kept. `make
// chaos` builds and runs it (DURATION=60s, SEED=n).
//
// # What it does
//
// One Edge and several Nodes are processes of bin/iop with short heartbeats
// (500 ms, 1500 ms). The providers are servers of this program that count what
// they run and can crash, hang, lie, or be slow. Between Nodes and Edge lie a TCP
// proxy of this program or, for one Node and as root, a network namespace of its
// own. A seed decides which fault comes when, to whom and for how long; how the
// processes interleave is real, so a seed is a schedule and not a replay.
//
// # What it asserts
//
//   - No provider ever runs more requests than the capacity that may be in force:
//     a raised capacity counts from the refresh that raises it, a lowered one from
//     when the Edge has confirmed it and its Node had undisturbed time to hear of
//     it. A request runs from the moment the provider has read it until the
//     provider has ended it. One which a deaf provider goes on with after its
//     client has left counts until cancel_grace_ms is over, as the contract says; one
//     of a dead Node process ends with the process.
//   - No request reaches providers twice.
//   - Every request of every client ends once and in time, with a whole answer or
//     an outcome of the error table in docs/contracts/openai-api.md. A transport error is
//     none of it, unless the Edge was killed under the request, or the request came
//     while the Edge was stopping or away: an orderly stop finishes what runs.
//   - What looks complete is complete: each answer carries the request's id in
//     every part, the number of parts and a checksum.
//   - In every snapshot: leases within capacity unless a capacity was lowered, the
//     queue within its limit, offline Nodes all 0 (S14), no double release.
//   - In the end: all Nodes connected, every provider serves, all counters 0, as many
//     leases released as granted; memory, descriptors, threads and goroutines of Edge
//     and Nodes near what they were before the first fault.
//
// # Reading the output
//
// It prints the seed first, then each breach as it is found, and at the end tables:
// faults by class (skipped: the target was still busy with another fault),
// outcomes by class, providers (peak of what counts; "deaf besides" is the most that
// a deaf provider went on with after the grace, next to them) and resources of each
// process before and after. The last line is "chaos: ok", or "chaos: N breaches"
// with the folder in which configuration, logs of all processes and faults.log (what
// was injected when) are kept; the exit code is 1 then.
//
// It owns its providers, proxy and clients, and must not know anything of the
// product but its command line, files, HTTP surface and control API. The product
// does not show goroutine counts: they are read from the dump that the Go runtime
// writes at SIGQUIT, from one set of processes ended before the faults and from
// another at the very end.
package main

// Package nodelink is the Edge's end of the Edge–Node wire: it serves
// NodeLinkService, settles who owns a node id, and gives edge/dispatch the work
// streams that nodes dialed.
//
// It owns the sessions (one per accepted node connection), the generation
// tokens and the parked work streams:
//
//	Register ──► judge ──► reject: bad credential, unknown node, duplicate owner, version skew, draining
//	               │
//	               ▼ accept: fence the former owner if there is one, Connect, issue a token
//	            session ──► end: Disconnect (the fence), then its streams end, then the event and the log
//
// A credential of a node that is replaced ([Credentials]) is offered over its
// session, and one that is revoked ends it ([Service.Revoke]): a registration is
// judged once more in its node's turn, so that none outlives a revocation.
//
// One place judges a token and maps it to its session ([Service.vet]); one whose
// generation has ended is refused there and counted. One place ends a session
// ([Service.end]).
//
// The handler of a work stream only waits for the stream's end; the goroutine
// that serves a request sends and receives on the stream itself. Because a Send
// after the handler returned would crash the process, the handler returns only
// when nobody holds the stream; a stream in use is ended by making its reads and
// writes fail ([transport.sever]).
//
// The package must not know models, queues, HTTP clients or how a request is
// admitted. All waiting is on the injected clock.
package nodelink

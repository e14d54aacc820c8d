// Package llamacpp is a server that behaves like llama.cpp's llama-server where
// a gateway can notice: what it writes, byte for byte, and what it does to its
// sockets. The answers are known in advance.
//
// # What it owns
//
// An HTTP/1.1 server on plain sockets (not net/http, which would not let it
// break its promises), slots with a queue before them, a model that counts, and
// a record of what it received. Its quirks:
//
//   - After a streamed answer it closes the socket, although its header promised
//     Keep-Alive. After a plain answer it keeps the promise, for 5 seconds; after
//     an error it says Connection: close.
//   - Access-Control-Allow-Origin is sent empty, or with whatever Origin came.
//   - The role of a chat stream and its first text are two events in one chunk,
//     and so are the finish and the usage.
//   - A queued request gets no byte, not even a header, and the queue is not
//     first come, first served.
//   - Malformed JSON is a 500, unknown models are answered by the loaded one, a
//     wrong method is a 404, error codes are integers.
//   - [DONE] ends chat and completion streams only.
//   - A client that goes away is noticed at once in a stream, and only at the
//     next poll, a second apart, in a plain answer.
//
// # The model
//
// "go 97", or anything whose last word is 97, is answered " 98 99 100". Counting
// stops at 100, 200, 300, 400 and 499; 500 to 899 go round for ever, that is
// until the context is full; 900 to 999 say nothing, but 980 reasons first and
// 990 calls the tool get_time if it was offered; anything else is answered from 1.
// A response_format with a schema is answered with the least JSON that fits it.
//
// # What it must not know
//
// Anything of IOP: it is what stands at the far end. It differs from the real
// one in what no test looks at: times in "timings" are made up, nothing is ever
// cached, n > 1 is for plain answers only, and sampling settings are ignored.
package llamacpp

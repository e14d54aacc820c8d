// Package engines drives a whole IOP (Edge and Node as real processes) against a
// real inference engine with real client libraries.
//
// It owns the end-to-end tests behind the build tag "engines", which
// `make e2e-engines` runs by way of run.sh: a real Ollama, a generated model
// whose answers are known in advance, a stand-in for llama.cpp, the official
// clients of npm and Go, and recording taps behind the Node that show that what
// a client received is what the engine sent, byte for byte, but for the spliced
// model name. Which client runs against which server is one list, which README.md
// and docs/clients.md are held against.
//
// It must not know how Edge or Node work inside: it sees what a user, an engine
// and an operator see, that is the command line, the configuration files and
// the sockets.
package engines

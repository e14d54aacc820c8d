// Package clients drives a running Edge as programs of others do, over every protocol
// that the typed APIs speak.
//
// What needs Go alone is part of `make test`. Behind the build tag "clients" stand
// the examples in TypeScript and Python and the commands of docs/api.md, for which
// `make e2e-clients` installs npm packages, Debian packages and grpcurl.
package clients

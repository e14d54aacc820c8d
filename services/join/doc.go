// Package join serves JoinService: a node shows a join token and gets its
// credential.
//
// It is the one call on an Edge that needs no credential before it, so it bounds
// what strangers can make it do: few attempts a second from one address and from
// all together, small messages. Which token serves whom is edge/credentials'
// matter.
package join

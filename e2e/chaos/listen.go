//go:build linux

package main

import (
	"fmt"
	"math/rand/v2"
	"net"
	"strconv"
)

// listen opens a port below those that the kernel gives to outgoing connections:
// whoever closes it for a while finds it free again.
func listen(host string) (net.Listener, error) {
	var err error
	for range 100 {
		var l net.Listener
		if l, err = net.Listen("tcp", net.JoinHostPort(host, strconv.Itoa(12000+rand.IntN(18000)))); err == nil {
			return l, nil
		}
	}
	return nil, fmt.Errorf("find a free port of %s: %w", host, err)
}

//go:build linux

package main

import (
	"encoding/binary"
	"net"
	"syscall"
)

// clientLeft asks the kernel whether the other end has closed the connection,
// which it knows before any reader here does.
func clientLeft(c net.Conn) bool {
	const established = 1 // of enum tcp_state; the first byte of struct tcp_info
	tcp, ok := c.(*net.TCPConn)
	if !ok {
		return false
	}
	raw, err := tcp.SyscallConn()
	if err != nil {
		return true
	}
	left := true
	err = raw.Control(func(fd uintptr) {
		// Four bytes of it, in the machine's order: state, ca_state, retransmits, probes.
		info, err := syscall.GetsockoptInt(int(fd), syscall.IPPROTO_TCP, syscall.TCP_INFO)
		var first [4]byte
		binary.NativeEndian.PutUint32(first[:], uint32(info))
		left = err != nil || first[0] != established
	})
	return left || err != nil
}

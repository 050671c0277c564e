// Package freeport finds ports for servers that tests start, kill and start again. It
// imports nothing of Perdure.
package freeport

import (
	"errors"
	"math/rand/v2"
	"net"
	"strconv"
	"testing"
)

// Systems give ports from 32768 on to connections and to listeners that ask for any
// port, so a server that is down for a moment could find its port taken.
const first, end = 10000, 32768

// Address returns an address of this machine, and the port in it, on which nothing
// listens and which no other process gets without asking for it.
func Address() (addr, port string, err error) {
	for range 1000 {
		port = strconv.Itoa(first + rand.IntN(end-first))
		addr = net.JoinHostPort("127.0.0.1", port)
		if l, err := net.Listen("tcp", addr); err == nil {
			return addr, port, l.Close()
		}
	}
	return "", "", errors.New("freeport: no free port found")
}

// For is Address for a test.
func For(tb testing.TB) (addr, port string) {
	tb.Helper()
	addr, port, err := Address()
	if err != nil {
		tb.Fatal(err)
	}
	return addr, port
}

package freeport_test

import (
	"net"
	"strconv"
	"testing"

	"github.com/perdure/perdure/internal/freeport"
)

// TestFor gives addresses on which one can listen, outside the range from which the
// system takes ports by itself.
func TestFor(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	given := l.Addr().(*net.TCPAddr).Port
	for range 50 {
		addr, port := freeport.For(t)
		l, err := net.Listen("tcp", addr)
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		if n, err := strconv.Atoi(port); err != nil || l.Addr().(*net.TCPAddr).Port != n || n >= given {
			t.Errorf("%s with port %s, the system gave %d", addr, port, given)
		}
	}
}

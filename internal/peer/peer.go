// Package peer tells which user of this machine is at the other end of a
// loopback connection, where the system can tell. It imports only the standard
// library.
package peer

import (
	"net"
	"net/netip"
)

// Owner returns the user id that owns the TCP socket of this machine with the
// given ends; remote is the zero AddrPort for a socket that listens. It reports
// false if there is no such socket or the system cannot tell.
func Owner(local, remote netip.AddrPort) (uid int, ok bool) {
	return owner(unmap(local), unmap(remote))
}

// Remote returns the user id behind the remote end of a connection that was
// accepted on this machine, and false if it cannot be told.
func Remote(local, remote net.Addr) (uid int, ok bool) {
	l, err := netip.ParseAddrPort(local.String())
	if err != nil {
		return 0, false
	}
	r, err := netip.ParseAddrPort(remote.String())
	if err != nil {
		return 0, false
	}
	return Owner(r, l) // the same connection, seen from its other end
}

func unmap(a netip.AddrPort) netip.AddrPort {
	return netip.AddrPortFrom(a.Addr().Unmap().WithZone(""), a.Port())
}

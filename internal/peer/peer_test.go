//go:build linux

package peer_test

import (
	"net"
	"net/netip"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/perdure/perdure/internal/peer"
)

// dial is what the test binary does as another user.
const dial = "PEER_TEST_DIAL"

func TestMain(m *testing.M) {
	if to := os.Getenv(dial); to != "" {
		c, err := net.Dial("tcp", to)
		if err != nil {
			os.Exit(3)
		}
		c.Read(make([]byte, 1)) // until the other side closes
		os.Exit(0)
	}
	os.Exit(m.Run())
}

func TestRemote(t *testing.T) {
	for _, at := range []string{"127.0.0.1:0", "[::1]:0", "localhost:0"} {
		l, err := net.Listen("tcp", at)
		if err != nil {
			if strings.Contains(at, "::1") {
				t.Logf("no IPv6 here: %v", err)
				continue
			}
			t.Fatal(err)
		}
		defer l.Close()
		self := netip.MustParseAddrPort(l.Addr().String())
		if uid, ok := peer.Owner(self, netip.AddrPort{}); !ok || uid != os.Geteuid() {
			t.Errorf("%s listens for user %d (%v), want %d", at, uid, ok, os.Geteuid())
		}
		for _, want := range []int{os.Geteuid(), 65534} {
			c := exec.Command(os.Args[0])
			c.Env = append(os.Environ(), dial+"="+l.Addr().String())
			if want != os.Geteuid() {
				if os.Geteuid() != 0 {
					continue // only root can become someone else
				}
				c.SysProcAttr = as(want)
				c.Path = public(t)
			}
			if err := c.Start(); err != nil {
				t.Fatal(err)
			}
			conn, err := l.Accept()
			if err != nil {
				t.Fatal(err)
			}
			if uid, ok := peer.Remote(conn.LocalAddr(), conn.RemoteAddr()); !ok || uid != want {
				t.Errorf("%s: user %d (%v) is at the other end, want %d", at, uid, ok, want)
			}
			conn.Close()
			if err := c.Wait(); err != nil {
				t.Error(err)
			}
			// A socket that nobody holds any more says nothing, least of all root.
			if uid, ok := peer.Remote(conn.LocalAddr(), conn.RemoteAddr()); ok {
				t.Errorf("%s: a closed connection belongs to %d", at, uid)
			}
		}
	}
	if _, ok := peer.Owner(netip.MustParseAddrPort("127.0.0.1:"+strconv.Itoa(1)), netip.AddrPort{}); ok {
		t.Error("someone listens on port 1")
	}
}

// public is a copy of this program that every user may run.
func public(t *testing.T) string {
	t.Helper()
	data, err := os.ReadFile(os.Args[0])
	if err != nil {
		t.Fatal(err)
	}
	dir, err := os.MkdirTemp("", "peer")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	name := dir + "/peer.test"
	if err := os.WriteFile(name, data, 0o755); err != nil {
		t.Fatal(err)
	}
	return name
}

func as(uid int) *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uint32(uid), Gid: uint32(uid)}}
}

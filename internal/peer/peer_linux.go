package peer

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"net/netip"
	"os"
	"strconv"
)

// Columns of the kernel's tables of TCP sockets.
const (
	columnLocal  = 1
	columnRemote = 2
	columnState  = 3
	columnUID    = 7
	columnInode  = 9
)

const stateListen = "0A"

// owner looks into the kernel's tables of TCP sockets. A socket without an inode
// belongs to no process any more, and its uid says nothing.
func owner(local, remote netip.AddrPort) (int, bool) {
	// An IPv6 socket can hold an IPv4 connection, so both tables are read.
	for _, table := range []string{"/proc/net/tcp", "/proc/net/tcp6"} {
		data, err := os.ReadFile(table)
		if err != nil {
			continue
		}
		for lines := bufio.NewScanner(bytes.NewReader(data)); lines.Scan(); {
			f := bytes.Fields(lines.Bytes())
			if len(f) <= columnInode || string(f[columnInode]) == "0" {
				continue
			}
			if l, ok := address(f[columnLocal]); !ok || l != local {
				continue
			}
			if !remote.IsValid() {
				if string(f[columnState]) != stateListen {
					continue
				}
			} else if r, ok := address(f[columnRemote]); !ok || r != remote {
				continue
			}
			uid, err := strconv.Atoi(string(f[columnUID]))
			return uid, err == nil
		}
	}
	return 0, false
}

// address decodes ADDRESS:PORT of a table: 32-bit words in the machine's byte
// order, in hexadecimal.
func address(text []byte) (netip.AddrPort, bool) {
	host, port, ok := bytes.Cut(text, []byte(":"))
	if !ok {
		return netip.AddrPort{}, false
	}
	raw := make([]byte, hex.DecodedLen(len(host)))
	if _, err := hex.Decode(raw, host); err != nil || len(raw)%4 != 0 {
		return netip.AddrPort{}, false
	}
	for i := 0; i < len(raw); i += 4 {
		binary.BigEndian.PutUint32(raw[i:], binary.NativeEndian.Uint32(raw[i:]))
	}
	ip, ok := netip.AddrFromSlice(raw)
	p, err := strconv.ParseUint(string(port), 16, 16)
	return netip.AddrPortFrom(ip.Unmap(), uint16(p)), ok && err == nil
}

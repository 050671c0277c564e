//go:build !unix

package link

import "os"

// fileID does not know: there is only the path.
func fileID(string) string { return "" }

// alive reports whether there is a process.
func alive(pid int) bool {
	p, err := os.FindProcess(pid)
	if err != nil {
		return false
	}
	p.Release()
	return true
}

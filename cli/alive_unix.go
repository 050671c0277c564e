//go:build unix

package cli

import (
	"errors"
	"syscall"
)

// alive reports whether there is a process.
func alive(pid int) bool {
	err := syscall.Kill(pid, 0)
	return pid > 0 && (err == nil || errors.Is(err, syscall.EPERM))
}

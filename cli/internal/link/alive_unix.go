//go:build unix

package link

import (
	"errors"
	"fmt"
	"os"
	"syscall"
)

// fileID names a file on this machine, and its owner; "" if there is none.
func fileID(name string) string {
	info, err := os.Stat(name)
	if err != nil {
		return ""
	}
	s, _ := info.Sys().(*syscall.Stat_t)
	return fmt.Sprintf("device %d, file %d, owner %d", s.Dev, s.Ino, s.Uid)
}

// alive reports whether there is a process.
func alive(pid int) bool {
	err := syscall.Kill(pid, 0)
	return pid > 0 && (err == nil || errors.Is(err, syscall.EPERM))
}

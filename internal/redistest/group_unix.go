//go:build unix

package redistest

import (
	"os/exec"
	"syscall"
)

// group makes a command run in a process group of its own, so that an interrupt of the
// tests does not reach it before they are done.
func group(cmd *exec.Cmd) { cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} }

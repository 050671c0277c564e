package main

import (
	"os"
	"syscall"
	"time"
)

func datasync(f *os.File) error { return syscall.Fdatasync(int(f.Fd())) }

// cpuTime is how long this process has computed.
func cpuTime() time.Duration {
	var u syscall.Rusage
	if syscall.Getrusage(syscall.RUSAGE_SELF, &u) != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

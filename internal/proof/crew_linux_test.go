package proof_test

import (
	"fmt"
	"os"
	"syscall"
)

const memoryIsLimited = true

// limitMemory lets the process take so many bytes more than it has.
func limitMemory(more uint64) error {
	text, err := os.ReadFile("/proc/self/statm")
	if err != nil {
		return err
	}
	var pages uint64
	if _, err := fmt.Sscan(string(text), &pages); err != nil {
		return err
	}
	limit := pages*uint64(os.Getpagesize()) + more
	return syscall.Setrlimit(syscall.RLIMIT_AS, &syscall.Rlimit{Cur: limit, Max: limit})
}

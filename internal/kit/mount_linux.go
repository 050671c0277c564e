package kit

import (
	"errors"
	"syscall"
	"testing"
	"time"
)

// Unmount unmounts a file system. The last processes of a server that was stopped may
// still be there for a moment.
func Unmount(t *testing.T, dir string) {
	t.Helper()
	err := syscall.Unmount(dir, 0)
	for tries := 0; errors.Is(err, syscall.EBUSY) && tries < 200; tries++ {
		time.Sleep(50 * time.Millisecond)
		err = syscall.Unmount(dir, 0)
	}
	NoErr(t, err)
}

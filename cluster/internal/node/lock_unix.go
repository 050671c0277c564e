//go:build unix

package node

import (
	"fmt"
	"os"
	"path/filepath"
	"syscall"
)

// lockFolder keeps two nodes from using one folder. The lock ends with the process.
func lockFolder(dir string) (*os.File, error) {
	f, err := os.OpenFile(filepath.Join(dir, "lock"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrConfig, err)
	}
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		f.Close()
		return nil, fmt.Errorf("%w: another process uses the folder %s", ErrConfig, dir)
	}
	return f, nil
}

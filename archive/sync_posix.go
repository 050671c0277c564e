//go:build !windows

package archive

import (
	"errors"
	"os"
	"syscall"
)

// fullCodes are the errors of a full disk.
var fullCodes = []error{syscall.ENOSPC, syscall.EDQUOT}

// syncFolder makes names that were added to a folder, or removed, last.
func syncFolder(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close())
}

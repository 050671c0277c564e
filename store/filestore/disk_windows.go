package filestore

import (
	"errors"
	"os"
	"syscall"
	"time"
)

// dirSyncs is false because Windows cannot sync a folder: a file's new name
// may be lost in a power failure.
const dirSyncs = false

var fullCodes = []error{
	syscall.Errno(0x70), // ERROR_DISK_FULL
	syscall.Errno(0x27), // ERROR_HANDLE_DISK_FULL
}

// rename replaces a file. Virus scanners and indexers open new files for a
// moment, and Windows refuses to replace an open file, so it is tried for a
// while.
func rename(from, to string) error {
	const sharingViolation = syscall.Errno(32)
	pause := time.Millisecond
	for {
		err := os.Rename(from, to)
		busy := errors.Is(err, sharingViolation) || errors.Is(err, syscall.ERROR_ACCESS_DENIED)
		if !busy || pause > time.Second {
			return err
		}
		time.Sleep(pause)
		pause *= 2
	}
}

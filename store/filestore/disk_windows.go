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

var (
	fullCodes = []error{
		syscall.Errno(0x70), // ERROR_DISK_FULL
		syscall.Errno(0x27), // ERROR_HANDLE_DISK_FULL
	}
	tooManyCodes = []error{syscall.Errno(0x04)} // ERROR_TOO_MANY_OPEN_FILES
)

func rename(from, to string) error { return patiently(func() error { return os.Rename(from, to) }) }
func remove(path string) error     { return patiently(func() error { return os.Remove(path) }) }

// patiently replaces or removes a file. Virus scanners and indexers open new
// files for a moment, as does a scan of the folder, and Windows refuses to
// replace or remove an open file, so it is tried for a while.
func patiently(do func() error) error {
	const sharingViolation = syscall.Errno(32)
	pause := time.Millisecond
	for {
		err := do()
		busy := errors.Is(err, sharingViolation) || errors.Is(err, syscall.ERROR_ACCESS_DENIED)
		if !busy || pause > time.Second {
			return err
		}
		time.Sleep(pause)
		pause *= 2
	}
}

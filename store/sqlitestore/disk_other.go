//go:build !unix

package sqlitestore

import (
	"errors"
	"io/fs"
	"os"
	"syscall"
)

// giveTo gives a new file the owner of another, where files have owners that
// are not inherited from their folder.
func giveTo(*os.File, fs.FileInfo) {}

// countNames returns how many hard links a file has, where that is told.
func countNames(fs.FileInfo) uint64 { return 1 }

// noRoom reports whether a write failed for want of space.
func noRoom(err error) bool {
	const handleDiskFull, diskFull = syscall.Errno(39), syscall.Errno(112)
	return errors.Is(err, handleDiskFull) || errors.Is(err, diskFull)
}

// syncFolder makes new names survive a power failure, where there is a way.
func syncFolder(string) error { return nil }

//go:build !windows

package filestore

import (
	"os"
	"syscall"
)

// dirSyncs says that a folder can be synced.
const dirSyncs = true

var (
	fullCodes    = []error{syscall.ENOSPC, syscall.EDQUOT}
	tooManyCodes = []error{syscall.EMFILE, syscall.ENFILE}
)

func rename(from, to string) error { return os.Rename(from, to) }
func remove(path string) error     { return os.Remove(path) }

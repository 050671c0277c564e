//go:build !(darwin || dragonfly || freebsd || linux || netbsd || openbsd || windows)

package filestore

import (
	"errors"
	"os"
)

// lockFile refuses: without a lock two processes could write to one folder.
func lockFile(string) (*os.File, error) {
	return nil, errors.New("filestore does not support the file locks of this system; use another store")
}

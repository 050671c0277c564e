//go:build !(darwin || dragonfly || freebsd || linux || netbsd || openbsd || windows)

package filestore

import (
	"errors"
	"os"
)

// lockFile refuses: without a lock two processes could write to one folder.
func lockFile(string) (*os.File, error) {
	return nil, errors.New("this system has no file locks that filestore knows; use another store")
}

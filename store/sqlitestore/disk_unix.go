//go:build unix

package sqlitestore

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
)

// giveTo gives a new file the group and the owner of another, as far as this
// process may.
func giveTo(f *os.File, like fs.FileInfo) {
	if stat, ok := like.Sys().(*syscall.Stat_t); ok {
		_ = f.Chown(-1, int(stat.Gid)) // whoever is in the group may
		_ = f.Chown(int(stat.Uid), -1) // root may
	}
}

// countNames returns how many hard links a file has.
func countNames(file fs.FileInfo) uint64 {
	stat, ok := file.Sys().(*syscall.Stat_t)
	if !ok {
		return 1
	}
	return uint64(stat.Nlink)
}

// noRoom reports whether a write failed for want of space.
func noRoom(err error) bool {
	return errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) || errors.Is(err, syscall.EFBIG)
}

// syncFolder makes the names of new files in the folder of file survive a
// power failure: the driver syncs files, but not the folders they are in.
func syncFolder(file string) error {
	d, err := os.Open(filepath.Dir(file))
	if err != nil {
		return err
	}
	defer d.Close()
	return d.Sync()
}

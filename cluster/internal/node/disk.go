package node

import (
	"io/fs"
	"path/filepath"
)

// diskLimit returns how many bytes the server in a folder may keep: what it has, and
// three quarters of what is free. The server's own default leaves out what it has, so
// that it would be full after a restart.
func diskLimit(dir string) int64 {
	free := freeDisk(filepath.Dir(dir))
	if free == 0 {
		return 0 // the server's default
	}
	used := int64(0)
	_ = filepath.WalkDir(dir, func(_ string, d fs.DirEntry, err error) error { // there is none at first
		if err != nil || d.IsDir() {
			return nil
		}
		if info, err := d.Info(); err == nil {
			used += info.Size()
		}
		return nil
	})
	return used + free/4*3
}

//go:build linux || darwin || freebsd

package node

import "syscall"

// freeDisk returns how many bytes are free where a folder is, 0 if that is unknown.
func freeDisk(dir string) int64 {
	var fs syscall.Statfs_t
	if syscall.Statfs(dir, &fs) != nil {
		return 0
	}
	return int64(fs.Bavail) * int64(fs.Bsize)
}

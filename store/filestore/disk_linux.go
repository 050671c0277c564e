package filestore

import (
	"os"
	"syscall"
)

// syncData writes a file's bytes and its size through to the disk, but not
// its times, which saves a write of the file system's journal.
func syncData(f *os.File) error {
	conn, err := f.SyscallConn()
	if err != nil {
		return err
	}
	var failed error
	err = conn.Control(func(fd uintptr) {
		for {
			if failed = syscall.Fdatasync(int(fd)); failed != syscall.EINTR {
				return
			}
		}
	})
	if err == nil && failed != nil {
		err = &os.PathError{Op: "fdatasync", Path: f.Name(), Err: failed}
	}
	return err
}

// inMemory reports whether the folder's file system is lost with the power.
func inMemory(dir string) bool {
	const tmpfs, ramfs = 0x01021994, 0x858458f6
	var fs syscall.Statfs_t
	if err := syscall.Statfs(dir, &fs); err != nil {
		return false
	}
	return uint32(fs.Type) == tmpfs || uint32(fs.Type) == ramfs
}

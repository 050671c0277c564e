package sqlitestore

import "syscall"

// inMemory reports whether the file lies on a file system that does not
// outlive the machine.
func inMemory(file string) bool {
	const tmpfs, ramfs = 0x01021994, 0x858458f6
	var st syscall.Statfs_t
	if err := syscall.Statfs(file, &st); err != nil {
		return true // claim less where it cannot be known
	}
	kind := uint32(st.Type)
	return kind == tmpfs || kind == ramfs
}

// freeSpaceOf returns how much room there is for a file, and a negative number
// where that is not known.
func freeSpaceOf(file string) int64 {
	var st syscall.Statfs_t
	if err := syscall.Statfs(file, &st); err != nil {
		return -1
	}
	return int64(st.Bavail) * int64(st.Bsize)
}

//go:build !linux

package sqlitestore

// inMemory reports whether the file lies on a file system that does not
// outlive the machine. Where this is unusual it is not looked for.
func inMemory(string) bool { return false }

// freeSpaceOf returns how much room there is for a file, and a negative number
// where that is not known.
func freeSpaceOf(string) int64 { return -1 }

//go:build !linux

package filestore

import "os"

// syncData writes a file through to the disk. On macOS, File.Sync is
// F_FULLFSYNC, which reaches the medium and not only the drive's cache.
func syncData(f *os.File) error { return f.Sync() }

// inMemory reports whether the folder's file system is lost with the power.
func inMemory(string) bool { return false }

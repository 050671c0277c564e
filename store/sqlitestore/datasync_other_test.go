//go:build !linux

package sqlitestore_test

import "os"

func datasync(f *os.File) error { return f.Sync() }

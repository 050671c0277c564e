package filestore

import (
	"errors"
	"os"
	"slices"
)

// disk holds the operations with which the driver changes files, so that tests
// can make each of them fail. Reads use package os directly.
type disk interface {
	create(path string) (*os.File, error)
	write(f *os.File, b []byte, at int64) error
	truncate(f *os.File, size int64) error
	sync(f *os.File) error
	rename(from, to string) error
	remove(path string) error
	mkdir(path string) error
	syncDir(path string) error
}

// osDisk is the operating system's disk.
type osDisk struct{ noSync bool }

func (osDisk) create(path string) (*os.File, error) {
	return os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
}

func (osDisk) write(f *os.File, b []byte, at int64) error {
	_, err := f.WriteAt(b, at)
	return err
}

func (osDisk) truncate(f *os.File, size int64) error { return f.Truncate(size) }

func (d osDisk) sync(f *os.File) error {
	if d.noSync {
		return nil
	}
	return syncData(f)
}

func (osDisk) rename(from, to string) error { return rename(from, to) }
func (osDisk) remove(path string) error     { return remove(path) }
func (osDisk) mkdir(path string) error      { return os.Mkdir(path, 0o700) }

func (d osDisk) syncDir(path string) error {
	if d.noSync || !dirSyncs {
		return nil
	}
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	return f.Sync()
}

// full reports whether err means that there is no space left.
func full(err error) bool { return isOneOf(err, fullCodes) }

// tooMany reports whether err means that too many files are open, which is
// temporary and not the disk's fault.
func tooMany(err error) bool { return isOneOf(err, tooManyCodes) }

func isOneOf(err error, codes []error) bool {
	return slices.ContainsFunc(codes, func(code error) bool { return errors.Is(err, code) })
}

package archive

import (
	"bytes"
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// A folder may be a mount point without its disk. There is no object then, and that
// proves nothing: whoever takes it for deleted has erased a thread that comes back with
// the disk. So a file in the folder says which archive it is.

// MarkFile is the name of that file.
const MarkFile = ".perdure-archive"

// identify remembers which archive is in the folder, and marks one that is not marked. A
// folder that cannot be written to, and has no mark, is known as long as the process
// runs: by what the file system says.
func (d *dir) identify() (err error) {
	if d.id, err = d.readMark(); errors.Is(err, fs.ErrNotExist) {
		if d.writeMark() == nil {
			d.id, err = d.readMark()
		} else {
			err = nil
		}
	}
	if err == nil {
		d.info, err = os.Stat(d.path)
	}
	return err
}

// readMark returns the id of the archive in the folder.
func (d *dir) readMark() (string, error) {
	data, err := os.ReadFile(filepath.Join(d.path, MarkFile))
	return string(bytes.TrimSpace(data)), err
}

// writeMark marks the folder, unless another process does so at the same time.
func (d *dir) writeMark() error {
	f, err := os.CreateTemp(d.path, partMark+"mark-")
	if err != nil {
		return err
	}
	defer os.Remove(f.Name())
	_, err = f.WriteString(strings.ToLower(rand.Text()) + "\n")
	if err = errors.Join(err, f.Sync(), f.Close()); err != nil {
		return err
	}
	mark := filepath.Join(d.path, MarkFile)
	err = os.Link(f.Name(), mark) // it replaces none
	if err != nil && !errors.Is(err, fs.ErrExist) {
		err = os.Rename(f.Name(), mark) // a file system without links
	}
	if err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	return syncFolder(d.path)
}

// check returns an error if the folder is not the archive that was opened.
func (d *dir) check() error {
	var is bool
	if d.id != "" {
		id, err := d.readMark()
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		is = id == d.id
	} else {
		info, err := os.Stat(d.path)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		is = err == nil && os.SameFile(info, d.info)
	}
	if !is {
		return fmt.Errorf("%w: %s is not the archive that was opened: mount its disk, or bring the folder back with its file %s", ErrUnavailable, d.path, MarkFile)
	}
	return nil
}

// ID implements Identified.
func (d *dir) ID() string { return d.id }

package archive

import (
	"bytes"
	"context"
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
// the disk, and what is put there is below the disk once it is back. So a file in the
// folder says which archive it is. It is written before the first object, and not when
// the folder is opened: only those who know which archive it should be may say so.

// MarkFile is the name of that file.
const MarkFile = ".perdure-archive"

// identify remembers which archive is in the folder. One without a mark is known as long
// as the process runs, by what the file system says, until it gets one.
func (d *dir) identify() (err error) {
	if d.id, err = d.readMark(); errors.Is(err, fs.ErrNotExist) {
		err = nil
	}
	if err == nil {
		d.info, err = os.Stat(d.path)
	}
	return err
}

// readMark returns the id of the archive in the folder: the first line of the mark, see
// fillMark. It is "" while the mark is being written.
func (d *dir) readMark() (string, error) {
	data, err := os.ReadFile(filepath.Join(d.path, MarkFile))
	id, _, _ := bytes.Cut(bytes.TrimSpace(data), []byte("\n"))
	return string(bytes.TrimSpace(id)), err
}

// writeMark marks the folder, unless another process does so at the same time.
func (d *dir) writeMark() error {
	f, err := os.CreateTemp(d.path, partMark+"mark-")
	if err != nil {
		return err
	}
	defer os.Remove(f.Name())
	id := strings.ToLower(rand.Text()) + "\n"
	_, err = f.WriteString(id)
	if err = errors.Join(err, f.Sync(), f.Close()); err != nil {
		return err
	}
	mark := filepath.Join(d.path, MarkFile)
	if os.Link(f.Name(), mark) != nil { // it replaces none
		err = fillMark(mark, id)
	}
	return errors.Join(err, syncFolder(d.path))
}

// fillMark writes a mark that is missing or empty: on a file system without links, where
// one that was killed may have left it so. Several may do so at once: each appends a line,
// and the first counts.
func fillMark(mark, id string) error {
	f, err := os.OpenFile(mark, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}
	info, err := f.Stat()
	if err == nil && info.Size() == 0 {
		_, err = f.WriteString(id)
	}
	return errors.Join(err, f.Sync(), f.Close())
}

// known returns the id of the archive that was opened. A folder that had none when it was
// opened is the one that has one now: its disk was mounted, or it was marked.
func (d *dir) known() (string, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.id == "" {
		id, err := d.readMark()
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return "", err
		}
		d.id = id
	}
	return d.id, nil
}

// check returns an error if the folder is not the archive that was opened.
func (d *dir) check() error {
	opened, err := d.known()
	if err != nil {
		return err
	}
	var is bool
	if opened != "" {
		id, err := d.readMark()
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		is = id == opened
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
func (d *dir) ID() string {
	id, _ := d.known()
	return id
}

// Begin implements Identified.
func (d *dir) Begin(context.Context) error {
	id, err := d.known()
	if err != nil || id != "" {
		return failed("reading", MarkFile, err)
	}
	if err := d.check(); err != nil {
		return err
	}
	if err := d.writeMark(); err != nil {
		return failed("writing", MarkFile, err)
	}
	_, err = d.known()
	return failed("reading", MarkFile, err)
}

package filestore

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"sync"

	"github.com/perdure/perdure/store"
)

var _ store.Backuper = (*Store)(nil)

// backupName is the folder of the store in a backup.
const backupName = "store"

// Backup implements store.Backuper. It holds up writes only for a moment, when the copy
// begins. After that, a write to a file that has not been copied yet copies it first.
func (s *Store) Backup(ctx context.Context, dir string) (string, error) {
	if err := s.usable(ctx); err != nil {
		return "", err
	}
	dir = filepath.Join(dir, backupName)
	c, err := newCopying(dir)
	if err == nil {
		if err := s.folder.beginCopy(c); err != nil {
			return "", err
		}
		err = errors.Join(c.run(func() error { return s.usable(ctx) }), s.folder.endCopy(c))
	}
	if err == nil {
		err = c.complete()
	}
	switch {
	case err == nil:
		return "file:" + backupName, nil
	case ctx.Err() != nil:
		return "", ctx.Err()
	case full(err):
		return "", fmt.Errorf("%w: filestore: back up to %s: %w; free some space there", store.ErrFull, dir, err)
	}
	return "", fmt.Errorf("filestore: back up to %s: %w", dir, err)
}

// beginCopy lets the calls in progress finish, and makes later ones keep what they
// change.
func (f *folder) beginCopy(c *copying) error {
	f.gate.Lock()
	defer f.gate.Unlock()
	c.e = f.engine
	if !f.engine.copying.CompareAndSwap(nil, c) {
		return fmt.Errorf("%w; wait until it is complete, and try again", store.ErrBackup)
	}
	return nil
}

// endCopy returns an error if the copy missed writes.
func (f *folder) endCopy(c *copying) error {
	f.gate.Lock()
	defer f.gate.Unlock()
	c.e.copying.Store(nil)
	if f.engine != c.e {
		return errors.New("the store was opened again after a failed write; back it up again")
	}
	return c.failure()
}

// copying is a copy of an engine's files as they were when it began. A file is
// copied once: by run, or by the call that is about to change it.
type copying struct {
	e   *engine
	dir string

	mu     sync.Mutex
	failed error
	shards map[string]*copiedShard // by path
}

// copiedShard holds the files of a shard that are copied, being copied, or pinned.
type copiedShard struct {
	done  bool // all files are copied
	files map[string]*copiedFile
}

// copiedFile is a file that is part of the copy.
type copiedFile struct {
	copy sync.Mutex // held while it is copied
	done bool       // guarded by copy

	mu     sync.Mutex
	pinned bool
	top    []byte // its beginning, which appends change
	end    int64  // where its part of the copy ends
}

// newCopying makes the folders of a copy, which calls write to as soon as it begins.
func newCopying(dir string) (*copying, error) {
	for _, d := range []string{dir, filepath.Join(dir, "journals"), filepath.Join(dir, "cells")} {
		if err := os.Mkdir(d, 0o700); err != nil {
			return nil, err
		}
	}
	return &copying{dir: dir, shards: map[string]*copiedShard{}}, nil
}

// keep is called before a file is replaced, created or removed.
func (e *engine) keep(path string) {
	if c := e.copying.Load(); c != nil {
		if f := c.file(path); f != nil {
			c.fail(c.save(path, f))
		}
	}
}

// keepEnd is called before the journal in a file changes after end.
func (e *engine) keepEnd(path string, end int64) {
	if c := e.copying.Load(); c != nil {
		if f := c.file(path); f != nil {
			c.fail(f.pin(path, end))
		}
	}
}

// fail ends the copy, but not the call that could not add to it.
func (c *copying) fail(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.failed == nil {
		c.failed = err
	}
}

func (c *copying) failure() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.failed
}

// file returns what the copy knows of a file, or nil if nothing is left to do.
func (c *copying) file(path string) *copiedFile {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.failed != nil {
		return nil
	}
	shard := c.shards[filepath.Dir(path)]
	if shard == nil {
		shard = &copiedShard{files: map[string]*copiedFile{}}
		c.shards[filepath.Dir(path)] = shard
	}
	if shard.done {
		return nil
	}
	f := shard.files[path]
	if f == nil {
		f = &copiedFile{}
		shard.files[path] = f
	}
	return f
}

// finish notes that all files of a shard are copied.
func (c *copying) finish(dir string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.shards[dir] = &copiedShard{done: true}
}

// pin records how much of a file belongs to the copy: up to end, or all of it if
// end is negative. Nobody changes the file meanwhile. A later pin may only cut off
// what a crash had torn.
func (f *copiedFile) pin(path string, end int64) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.pinned {
		if end >= 0 {
			f.end = min(f.end, end)
		}
		return nil
	}
	file, err := os.Open(path)
	if err != nil {
		return err
	}
	defer file.Close()
	size, err := file.Seek(0, io.SeekEnd)
	if err != nil {
		return err
	}
	if end < 0 || end > size {
		end = size
	}
	top := make([]byte, min(end, maxTop+2*headLen))
	if _, err := file.ReadAt(top, 0); err != nil {
		return err
	}
	f.pinned, f.top, f.end = true, top, end
	return nil
}

// save copies a file unless that is done. A file that does not exist is not part of
// the copy, and neither is what takes its place later.
func (c *copying) save(path string, f *copiedFile) error {
	f.copy.Lock()
	defer f.copy.Unlock()
	if f.done {
		return nil
	}
	err := f.pin(path, -1)
	if err == nil {
		err = c.write(path, f)
	} else if errors.Is(err, fs.ErrNotExist) {
		err = nil
	}
	f.done = err == nil
	return err
}

// write writes the pinned part of a file to the copy.
func (c *copying) write(path string, f *copiedFile) (err error) {
	from, err := os.Open(path)
	if err != nil {
		return err
	}
	defer from.Close()
	inside, err := filepath.Rel(c.e.dir, path)
	if err != nil {
		return err
	}
	to, err := os.OpenFile(filepath.Join(c.dir, inside), os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if errors.Is(err, fs.ErrNotExist) { // the folder of the shard
		if err = os.Mkdir(filepath.Join(c.dir, filepath.Dir(inside)), 0o700); err == nil || errors.Is(err, fs.ErrExist) {
			to, err = os.OpenFile(filepath.Join(c.dir, inside), os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
		}
	}
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, to.Close()) }()
	f.mu.Lock()
	top, end := f.top, f.end
	f.mu.Unlock()
	if _, err := to.Write(top); err != nil {
		return err
	}
	n := int64(len(top))
	more, err := io.Copy(to, io.NewSectionReader(from, n, end-n))
	if err != nil {
		return err
	}
	f.mu.Lock()
	end = min(f.end, n+more) // a torn append may have been cut off, and another written in its place
	f.mu.Unlock()
	if err := to.Truncate(end); err != nil {
		return err
	}
	return to.Sync()
}

// run copies all files. It calls usable now and then, and ends with its error.
func (c *copying) run(usable func() error) error {
	shards := make(chan string)
	var all sync.WaitGroup
	for range copiers {
		all.Go(func() {
			for dir := range shards {
				if c.failure() == nil {
					c.fail(c.copyShard(dir, usable))
				}
			}
		})
	}
	for n := range 256 {
		shards <- c.e.journals.shard(byte(n))
		shards <- c.e.cells.shard(byte(n))
	}
	close(shards)
	all.Wait()
	return c.failure()
}

// complete syncs the folders of the copy, once no call adds to them, and makes it a
// store with FORMAT as its last file.
func (c *copying) complete() error {
	for _, name := range []string{"journals", "cells"} {
		dir := filepath.Join(c.dir, name)
		shards, err := os.ReadDir(dir)
		if err != nil {
			return err
		}
		for _, shard := range shards {
			if err := (osDisk{}).syncDir(filepath.Join(dir, shard.Name())); err != nil {
				return err
			}
		}
		if err := (osDisk{}).syncDir(dir); err != nil {
			return err
		}
	}
	if err := c.write(filepath.Join(c.e.dir, "FORMAT"), &copiedFile{end: int64(len(formatLine(format)))}); err != nil {
		return err
	}
	return (osDisk{}).syncDir(c.dir)
}

// copiers is how many shards are copied at once: their syncs share commits of the
// file system.
const copiers = 8

// copyShard copies the files of a shard. Files that are replaced while the folder is
// read, and may be missed here, are copied by those who replace them.
func (c *copying) copyShard(dir string, usable func() error) error {
	files, err := os.ReadDir(dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	for _, file := range files {
		if err := usable(); err != nil {
			return err
		}
		path := filepath.Join(dir, file.Name())
		f := c.file(path)
		if f == nil {
			return nil // the copy has failed
		}
		if err := c.save(path, f); err != nil {
			return err
		}
	}
	c.finish(dir)
	return nil
}

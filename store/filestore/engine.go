package filestore

import (
	"cmp"
	"container/list"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"sync/atomic"

	"github.com/perdure/perdure/store"
)

// engine is what the handles on one folder share, from its opening until it
// is poisoned or the last handle is closed.
type engine struct {
	dir  string
	disk disk
	lock os.FileInfo // of the file LOCK that this process holds

	failed atomic.Pointer[error] // why it is poisoned
	temps  atomic.Uint64         // names of temporary files

	copying atomic.Pointer[copying] // a backup in progress

	journals  shelf
	cells     shelf
	cellLocks [64]cellLock

	mu     sync.Mutex
	loaded map[string]*journal

	files openFiles
}

func newEngine(dir string, d disk, lock os.FileInfo) *engine {
	e := &engine{dir: dir, disk: d, lock: lock, loaded: map[string]*journal{}}
	e.journals = shelf{e: e, root: filepath.Join(dir, "journals"), ext: ".jsonl"}
	e.cells = shelf{e: e, root: filepath.Join(dir, "cells"), ext: ".json"}
	return e
}

// start removes what a dead process left in tmp. It also syncs the folders down to
// the shelves, so that nothing builds on what such a process created but did not
// sync.
func (e *engine) start() error {
	tmp := filepath.Join(e.dir, "tmp")
	if err := e.disk.mkdir(tmp); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	stray, err := os.ReadDir(tmp)
	if err != nil {
		return err
	}
	for _, s := range stray {
		if err := e.disk.remove(filepath.Join(tmp, s.Name())); err != nil {
			return err
		}
	}
	parent := filepath.Dir(e.dir)
	for _, dir := range []string{parent, e.dir, e.journals.root, e.cells.root} {
		err := e.disk.syncDir(dir)
		if dir == parent && errors.Is(err, fs.ErrPermission) {
			continue // the parent need not be ours to read
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// errNothingDone is wrapped by the error of a write that did not begin.
var errNothingDone = errors.New("nothing was written")

// poison ends all writing, unless the write did not begin, and returns the error
// of the failed call.
func (e *engine) poison(cause error, doing string, args ...any) error {
	doing = fmt.Sprintf(doing, args...)
	if errors.Is(cause, errNothingDone) {
		return fmt.Errorf("filestore: %s: %w; raise the limit of open files for the process and try again", doing, cause)
	}
	err := fmt.Errorf("%w: filestore: %s: %w", store.ErrPoisoned, doing, cause)
	hint := "close the store and open it again, which recovers all acknowledged writes"
	if full(cause) {
		err = fmt.Errorf("%w: %w; free some space, then %s", store.ErrFull, err, hint)
	} else {
		err = fmt.Errorf("%w; check the disk, then %s", err, hint)
	}
	e.failed.CompareAndSwap(nil, &err)
	return err
}

// poisoned returns ErrPoisoned if an earlier write failed.
func (e *engine) poisoned() error {
	if first := e.failed.Load(); first != nil {
		return fmt.Errorf("an earlier write failed: %w", *first)
	}
	return nil
}

// mayWrite is called after a call has waited for its turn.
func (e *engine) mayWrite(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	return e.writable()
}

// writable is called before files are changed.
func (e *engine) writable() error {
	if err := e.poisoned(); err != nil {
		return err
	}
	// If someone has removed LOCK, or the whole folder, another process may be
	// writing to it too.
	now, err := os.Stat(filepath.Join(e.dir, lockName))
	if err == nil && !os.SameFile(now, e.lock) {
		err = fmt.Errorf("%s in %s is not the file that this process locked", lockName, e.dir)
	}
	if err != nil {
		return e.poison(err, "checking that this process still owns the folder")
	}
	return nil
}

// stage durably writes a file under a temporary name, for install to move into
// place. If either fails, the caller poisons the engine.
func (e *engine) stage(content []byte) (temp string, err error) {
	temp = filepath.Join(e.dir, "tmp", strconv.FormatUint(e.temps.Add(1), 10))
	f, err := e.disk.create(temp)
	if tooMany(err) {
		return "", fmt.Errorf("%w: %w", errNothingDone, err)
	}
	if err != nil {
		return "", err
	}
	err = e.disk.write(f, content, 0)
	if err == nil {
		err = e.disk.sync(f)
	}
	return temp, cmp.Or(err, f.Close())
}

// install durably moves a staged file to path.
func (e *engine) install(temp, path string) error {
	if err := e.disk.rename(temp, path); err != nil {
		return err
	}
	return e.disk.syncDir(filepath.Dir(path))
}

// maxOpen is how many journals' files are kept open for appending. It is far below
// the limit of a process: compared with a sync, opening a file is cheap.
const maxOpen = 32

// openFiles holds the files of the journals appended to most recently.
type openFiles struct {
	mu    sync.Mutex
	order list.List // of *journal, most recently used first
}

// get returns the journal's file, open for writing. The caller holds the
// journal's write lock.
func (o *openFiles) get(j *journal) (*os.File, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if j.file != nil {
		o.order.MoveToFront(j.open)
		return j.file, nil
	}
	f, err := os.OpenFile(j.path, os.O_RDWR, 0)
	if err != nil {
		return nil, err
	}
	j.file, j.open = f, o.order.PushFront(j)
	for at := o.order.Back(); o.order.Len() > maxOpen && at != nil; {
		old := at.Value.(*journal)
		at = at.Prev()
		if old != j && old.write.TryLock() { // keep one that is being written to
			o.shut(old)
			old.write.Unlock()
		}
	}
	return f, nil
}

// close closes the journal's file if it is open. The caller holds the
// journal's write lock.
func (o *openFiles) close(j *journal) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.shut(j)
}

func (o *openFiles) shut(j *journal) {
	if j.file != nil {
		j.file.Close() // everything that counts is synced
		o.order.Remove(j.open)
		j.file, j.open = nil, nil
	}
}

// closeAll closes all files. The caller ensures that no journal is being written
// to.
func (o *openFiles) closeAll() {
	o.mu.Lock()
	defer o.mu.Unlock()
	for o.order.Len() > 0 {
		o.shut(o.order.Front().Value.(*journal))
	}
}

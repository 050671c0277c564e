package filestore

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/perdure/perdure/store"
)

// folder is a store's folder while this process has it open. It is shared by the
// handles on it, and by the engines that succeed each other.
type folder struct {
	dir     string
	options Options
	disk    disk
	class   store.Durability
	hub     *store.Hub
	lock    *os.File
	id      os.FileInfo // of the lock file; it identifies the folder
	handles int         // guarded by folders

	// gate is held for reading by every call that may use files, and for
	// writing in order to wait for those calls. It guards engine.
	gate   sync.RWMutex
	engine *engine
}

// folders holds the folders that this process has open.
var folders struct {
	sync.Mutex
	open []*folder
}

// lockName is the file that is locked while the folder is open.
const lockName = "LOCK"

// errHeld is what lockFile returns if another process holds the lock.
var errHeld = errors.New("held by another process")

// format is the number of the format that this package reads and writes.
const format = 1

const about = `"about":"a Perdure store; journals and cells are JSON lines with checksums: read them, but do not edit them"`

func formatLine(n int) []byte {
	return seal(fmt.Appendf(nil, `{"perdure":"filestore","format":%d,%s`, n, about), 0, 0)
}

// openFolder returns a handle on the store in dir.
func openFolder(ctx context.Context, dir string, o Options, d disk) (*Store, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if dir == "" {
		return nil, fmt.Errorf("%w: filestore: the name of the folder is empty; write file:DIR", store.ErrInvalid)
	}
	dir, err := filepath.Abs(dir)
	if err != nil {
		return nil, fmt.Errorf("filestore: open %s: %w", dir, err)
	}
	shared := o.SharedFolder
	o.SharedFolder = false // only matters for a new store
	folders.Lock()
	defer folders.Unlock()
	f, err := sharedFolder(dir, o)
	if err == nil && f == nil {
		if !shared {
			err = checkNew(dir)
		}
		if err == nil {
			f, err = takeFolder(dir, o, d)
		}
	}
	if err != nil {
		return nil, err
	}
	f.handles++
	return &Store{Hub: f.hub.Share(), folder: f, engine: f.engine}, nil
}

// checkNew refuses to create a store where everyone may write: in dir if that
// exists and is not yet a store, and otherwise in its parent.
func checkNew(dir string) error {
	if _, err := os.Stat(filepath.Join(dir, lockName)); err == nil {
		return nil
	}
	if _, err := os.Stat(dir); errors.Is(err, fs.ErrNotExist) {
		dir = filepath.Dir(dir)
	}
	if err := store.CheckFolder(dir); err != nil {
		return fmt.Errorf("filestore: %w", err)
	}
	return nil
}

// sharedFolder returns the folder if this process already has it open. The lock
// file identifies it: unlike a path it has one identity, and unlike the folder it
// cannot be deleted and created again while it is held open.
func sharedFolder(dir string, o Options) (*folder, error) {
	id, err := os.Stat(filepath.Join(dir, lockName))
	if err != nil {
		return nil, nil // takeFolder runs into the same error
	}
	for _, f := range folders.open {
		if !os.SameFile(f.id, id) {
			continue
		}
		if f.options != o {
			return nil, fmt.Errorf("%w: filestore: %s is already open in this process with other options; use the same ones", store.ErrInvalid, dir)
		}
		if err := f.renew(); err != nil {
			return nil, openFailed(dir, err)
		}
		return f, nil
	}
	return nil, nil
}

// renew replaces a poisoned engine with one that starts over from the files, as a
// reopened store does, while other handles are still open. Those keep their
// poisoned engine for writing, and read through the new one.
func (f *folder) renew() error {
	f.gate.Lock()
	defer f.gate.Unlock()
	if f.engine.poisoned() == nil {
		return nil
	}
	f.engine.files.closeAll()
	next := newEngine(f.dir, f.disk, f.id)
	if err := next.start(); err != nil {
		return err
	}
	f.engine = next
	f.hub.WakeAll()
	return nil
}

// takeFolder locks the folder for this process, and creates the store if there is
// none.
func takeFolder(dir string, o Options, d disk) (f *folder, err error) {
	if err := os.Mkdir(dir, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		if errors.Is(err, fs.ErrNotExist) {
			return nil, fmt.Errorf("filestore: open %s: its parent folder does not exist; create it first: %w", dir, err)
		}
		return nil, openFailed(dir, err)
	}
	if target, err := filepath.EvalSymlinks(dir); err == nil {
		dir = target // so that a link changed later does not redirect an open store
	}
	if _, err := survey(dir); err != nil { // before anything is written to a folder that may not be ours
		return nil, err
	}
	lock, err := lockFile(filepath.Join(dir, lockName))
	if errors.Is(err, errHeld) {
		return nil, locked(dir)
	}
	if err != nil {
		return nil, openFailed(dir, err)
	}
	defer func() {
		if err != nil {
			lock.Close()
		}
	}()
	id, err := lock.Stat()
	if err != nil {
		return nil, openFailed(dir, err)
	}
	made, err := survey(dir)
	if err != nil {
		return nil, err
	}
	f = &folder{dir: dir, options: o, disk: d, class: store.Power, hub: store.NewHub(), lock: lock, id: id}
	if o.NoSync || !dirSyncs || inMemory(dir) {
		f.class = store.Process
	}
	f.engine = newEngine(dir, d, id)
	if err := f.prepare(made); err != nil {
		return nil, openFailed(dir, err)
	}
	// A courtesy to those who find the folder locked; nothing depends on it.
	if lock.Truncate(0) == nil {
		fmt.Fprintln(lock, os.Getpid())
	}
	folders.open = append(folders.open, f)
	return f, nil
}

// survey reports whether dir holds a store, and returns an error if it holds
// something else.
func survey(dir string) (made bool, err error) {
	files, err := os.ReadDir(dir)
	if err != nil {
		if info, statErr := os.Stat(dir); statErr == nil && !info.IsDir() {
			return false, fmt.Errorf("%w: filestore: %s is a file, not a folder; name a new or empty folder", store.ErrForeign, dir)
		}
		return false, openFailed(dir, err)
	}
	has := map[string]bool{}
	for _, file := range files {
		has[file.Name()] = true
	}
	if !has["FORMAT"] {
		return false, unfinished(dir, files)
	}
	line, err := topOf(filepath.Join(dir, "FORMAT"), 4096)
	if err != nil {
		return false, openFailed(dir, err)
	}
	number := 0
	content, why := unseal(line, 0)
	if why == "" {
		_, err := fmt.Sscanf(string(content), `{"perdure":"filestore","format":%d,`, &number)
		if err != nil {
			why = "the line was not written by filestore"
		}
	}
	switch {
	case why != "" && !has["journals"]:
		return false, fmt.Errorf("%w: filestore: the file FORMAT in %s does not belong to a store; name a new or empty folder", store.ErrForeign, dir)
	case why == "" && number > format:
		return false, fmt.Errorf("%w: filestore: %s has format %d, but this binary reads only up to %d; use a newer version of the program", store.ErrNewer, dir, number, format)
	case why == "" && !bytes.Equal(line, formatLine(format)):
		why = "filestore does not write such a line"
	case why == "" && !has["journals"]:
		why = "the folder journals is missing; if it was empty, create it"
	case why == "" && !has["cells"]:
		why = "the folder cells is missing; if it was empty, create it"
	}
	if why != "" {
		return false, &store.CorruptError{Where: filepath.Join(dir, "FORMAT"), Reason: why}
	}
	return true, nil
}

// unfinished returns ErrForeign unless the files, which do not include FORMAT, are
// the remains of a store whose creation was cut short.
func unfinished(dir string, files []fs.DirEntry) error {
	for _, file := range files {
		name, ours := file.Name(), true
		if name != lockName {
			inside, err := os.ReadDir(filepath.Join(dir, name))
			ours = err == nil && slices.Contains([]string{"tmp", "journals", "cells"}, name)
			for _, file := range inside {
				_, err := strconv.ParseUint(file.Name(), 10, 64) // as stage names files
				ours = ours && name == "tmp" && err == nil
			}
		}
		if !ours {
			return fmt.Errorf("%w: filestore: %s holds %q but no FORMAT file; name a new or empty folder, or restore FORMAT from a backup", store.ErrForeign, dir, name)
		}
	}
	return nil
}

// prepare makes the folder ready for use, and creates the store if there is none.
// FORMAT comes last: it completes the store.
func (f *folder) prepare(made bool) error {
	for _, name := range []string{"journals", "cells"} {
		if err := f.disk.mkdir(filepath.Join(f.dir, name)); err != nil && !errors.Is(err, fs.ErrExist) {
			return err
		}
	}
	err := f.engine.start()
	if err != nil || made {
		return err
	}
	temp, err := f.engine.stage(formatLine(format))
	if err != nil {
		return err
	}
	return f.engine.install(temp, filepath.Join(f.dir, "FORMAT"))
}

// release gives up one handle. The last one waits for calls in progress and
// releases the lock: from then on another process may write.
func (f *folder) release() error {
	folders.Lock()
	defer folders.Unlock()
	if f.handles--; f.handles > 0 {
		return nil
	}
	f.gate.Lock()
	defer f.gate.Unlock()
	f.engine.files.closeAll()
	folders.open = slices.DeleteFunc(folders.open, func(other *folder) bool { return other == f })
	return f.lock.Close()
}

func openFailed(dir string, err error) error {
	if full(err) {
		return fmt.Errorf("%w: filestore: open %s: %w; free some space", store.ErrFull, dir, err)
	}
	return fmt.Errorf("filestore: open %s: %w; check that it is a folder that this user may read and write", dir, err)
}

func locked(dir string) error {
	holder := "another process"
	if b, err := topOf(filepath.Join(dir, lockName), 32); err == nil {
		if pid, err := strconv.Atoi(strings.TrimSpace(string(b))); err == nil {
			holder = fmt.Sprintf("process %d", pid)
		}
	}
	return fmt.Errorf("%w: filestore: %s is open in %s; stop it, or use a store for several processes (sqlite:FILE)", store.ErrLocked, dir, holder)
}

package filestore

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"sync"

	"github.com/perdure/perdure/store"
)

// cellLock is shared by the cells of some shards.
type cellLock struct {
	write sync.Mutex   // held while a cell is changed
	file  sync.RWMutex // held while its file is read, or replaced and synced
}

func (e *engine) cellLock(p place) *cellLock {
	return &e.cellLocks[int(p.shard)%len(e.cellLocks)]
}

const cellTop = `{"perdure":"cell","format":1`

func renderCell(c store.Cell) []byte {
	b := make([]byte, 0, len(c.Value)+len(c.Key)+160)
	b = appendName(append(b, cellTop...), "key", c.Key)
	b = append(b, `,"version":"`+string(c.Version)+`"`...)
	b = appendData(b, c.Value)
	return seal(b, 0, saltOf(c.Key))
}

// parseCell parses the file of the cell called key, or says what is wrong with
// it.
func parseCell(line []byte, key string) (c store.Cell, why string) {
	b, why := unseal(line, saltOf(key))
	if why != "" {
		return c, why
	}
	b, ok := bytes.CutPrefix(b, appendName([]byte(cellTop), "key", key))
	if ok {
		b, ok = bytes.CutPrefix(b, []byte(`,"version":"`))
	}
	version, member, found := bytes.Cut(b, []byte(`"`))
	value, decoded := dataOf(member)
	if !ok || !found || !decoded {
		return c, "the file does not hold this cell"
	}
	return store.Cell{Key: key, Value: value, Version: store.Version(version)}, ""
}

// get reads a cell, or returns ErrNotFound.
func (e *engine) get(key string) (store.Cell, error) {
	p := placeOf(key)
	if err := e.cells.settle(p.shard, false); err != nil {
		return store.Cell{}, err
	}
	lock := e.cellLock(p)
	lock.file.RLock()
	defer lock.file.RUnlock()
	path := e.cells.path(p)
	line, err := topOf(path, maxTop+maxLine)
	if errors.Is(err, fs.ErrNotExist) {
		return store.Cell{}, store.NoCell(key)
	}
	if err != nil {
		return store.Cell{}, fmt.Errorf("filestore: read cell %q: %w", key, err)
	}
	c, why := parseCell(line, key)
	if why != "" {
		// The version identifies exactly these bytes.
		return store.Cell{}, &store.CorruptError{Cell: key, Version: store.Version(fmt.Sprintf("damaged-%x", sha256.Sum256(line))), Where: path, Reason: why}
	}
	return c, nil
}

// expect returns ErrConflict unless the cell's version is prev; "" means no cell.
func (e *engine) expect(key string, prev store.Version) error {
	c, err := e.get(key)
	if bad, ok := errors.AsType[*store.CorruptError](err); ok && bad.Version == prev {
		return nil
	}
	if err != nil && !errors.Is(err, store.ErrNotFound) {
		return err
	}
	if c.Version != prev {
		return store.NotVersion(key, prev, c.Version)
	}
	return nil
}

func (e *engine) put(ctx context.Context, key string, value []byte, prev store.Version) (store.Version, error) {
	p := placeOf(key)
	lock := e.cellLock(p)
	lock.write.Lock()
	defer lock.write.Unlock()
	if err := e.expect(key, prev); err != nil {
		return "", err
	}
	if err := e.mayWrite(ctx); err != nil {
		return "", err
	}
	if err := e.cells.settle(p.shard, true); err != nil {
		return "", err
	}
	c := store.Cell{Key: key, Value: value, Version: store.Version(rand.Text())}
	temp, err := e.stage(renderCell(c))
	if err != nil {
		return "", e.poison(err, "writing cell %q", key)
	}
	e.keep(e.cells.path(p))
	lock.file.Lock()
	defer lock.file.Unlock()
	if err := e.install(temp, e.cells.path(p)); err != nil {
		return "", e.poison(err, "writing cell %q", key)
	}
	e.cells.index.add(key, e.cells.path(p))
	return c.Version, nil
}

func (e *engine) delete(ctx context.Context, key string, prev store.Version) error {
	p := placeOf(key)
	lock := e.cellLock(p)
	lock.write.Lock()
	defer lock.write.Unlock()
	if err := e.expect(key, prev); err != nil {
		return err
	}
	if err := e.mayWrite(ctx); err != nil {
		return err
	}
	path := e.cells.path(p)
	e.keep(path)
	lock.file.Lock()
	defer lock.file.Unlock()
	err := e.disk.remove(path)
	if err == nil {
		err = e.disk.syncDir(filepath.Dir(path))
	}
	if err != nil {
		return e.poison(err, "deleting cell %q", key)
	}
	e.cells.index.remove(key, path)
	return nil
}

// keys returns up to limit keys after the given one that begin with prefix, and
// the damage of cells whose keys are unknown.
func (e *engine) keys(prefix, after string, limit int) (keys []string, damage, err error) {
	x := &e.cells.index
	err = x.load(func() ([]string, map[string]error, error) {
		return e.cells.scan("key", func(string, []byte) bool { return false })
	})
	if err != nil {
		return nil, nil, fmt.Errorf("filestore: list the cells: %w", err)
	}
	return x.behind(prefix, after, limit), x.damage(prefix), nil
}

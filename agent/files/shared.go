package files

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/perdure/perdure"
)

// Shelf keeps JSON values by key where threads share them. Implement it on a database
// of your own to use it with [Shared]; the implementation decides who shares what. Keys
// are paths of files, of at most [MaxPath] bytes.
type Shelf interface {
	// Get returns a value and whether there is one.
	Get(ctx context.Context, key string) ([]byte, bool, error)
	// Put creates or replaces a value.
	Put(ctx context.Context, key string, value []byte) error
	// Delete removes a value; removing a missing one is not an error.
	Delete(ctx context.Context, key string) error
	// List returns the keys that begin with a prefix, in any order.
	List(ctx context.Context, prefix string) ([]string, error)
}

// Shared keeps files on a shelf that threads share. They outlive the thread and
// are not forked or rewound with it: what a step did to them stays. If two threads
// write a file at the same time, the last write wins. A file is one value, so the
// shelf's limit for values applies to files.
func Shared(s Shelf) FS { return sharedFS{s} }

type sharedFS struct{ shelf Shelf }

var _ FS = sharedFS{}

type sharedFile struct {
	Text     string    `json:"text"`
	Created  time.Time `json:"created"`
	Modified time.Time `json:"modified"`
}

func sharedError(p string, err error) error {
	if err != nil {
		err = fmt.Errorf("agent: shared file %s: %w", p, err)
	}
	return err
}

var errNoShelf = fmt.Errorf("%w: shared files without a shelf", perdure.ErrOption)

func (s sharedFS) Read(ctx context.Context, p string) (File, error) {
	p, err := CleanFile(p)
	if err != nil {
		return File{}, err
	}
	if s.shelf == nil {
		return File{}, errNoShelf
	}
	raw, ok, err := s.shelf.Get(ctx, p)
	if err != nil {
		return File{}, sharedError(p, err)
	}
	if !ok {
		return File{}, s.missing(ctx, p)
	}
	var v sharedFile
	if err := json.Unmarshal(raw, &v); err != nil {
		return File{}, sharedError(p, err)
	}
	return File{Path: p, Text: v.Text, Size: len(v.Text), Created: v.Created, Modified: v.Modified}, nil
}

// missing returns the error for a path without a file.
func (s sharedFS) missing(ctx context.Context, p string) error {
	inside, err := s.shelf.List(ctx, p+"/")
	switch {
	case err != nil:
		return sharedError(p, err)
	case len(inside) > 0:
		return isFolder(p)
	}
	return notFound(p)
}

func (s sharedFS) Write(ctx context.Context, p, text string) error {
	p, err := cleanWrite(p, text)
	if err != nil {
		return err
	}
	if s.shelf == nil {
		return errNoShelf
	}
	for _, dir := range foldersAbove(p) {
		if _, ok, err := s.shelf.Get(ctx, dir); err != nil {
			return sharedError(p, err)
		} else if ok {
			return badPath(p, "%s is a file, not a folder", dir)
		}
	}
	now := perdure.Now(ctx)
	v := sharedFile{text, now, now}
	switch old, err := s.Read(ctx, p); {
	case err == nil:
		v.Created = old.Created
	case !errors.Is(err, ErrNotFound):
		return err
	}
	raw, err := json.Marshal(v)
	if err != nil {
		return err
	}
	err = s.shelf.Put(ctx, p, raw)
	if errors.Is(err, perdure.ErrTooLarge) {
		return &pathError{p, fmt.Sprintf("it has %d bytes, too many for a file that threads share; split it", len(text)), ErrNotText}
	}
	return sharedError(p, err)
}

func (s sharedFS) Remove(ctx context.Context, p string) error {
	f, err := s.Read(ctx, p)
	if err != nil {
		return err
	}
	return sharedError(f.Path, s.shelf.Delete(ctx, f.Path))
}

func (s sharedFS) List(ctx context.Context, dir string) ([]File, error) {
	dir, err := Clean(dir)
	if err != nil {
		return nil, err
	}
	if s.shelf == nil {
		return nil, errNoShelf
	}
	keys, err := s.shelf.List(ctx, strings.TrimSuffix(dir, "/")+"/")
	if err != nil {
		return nil, fmt.Errorf("agent: shared files in %s: %w", dir, err)
	}
	return listFolder(dir, keys, func(p string) (File, error) {
		f, err := s.Read(ctx, p)
		if errors.Is(err, ErrNotFound) || errors.Is(err, ErrPath) { // removed since it was listed
			err = nil
		}
		return f, err
	})
}

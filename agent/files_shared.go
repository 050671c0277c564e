package agent

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/perdure/perdure"
)

// Shelf keeps values, which are JSON, by key where threads share them. It is what
// [SharedFiles] needs of a database of yours, and decides who shares it. Keys are
// paths of files, of at most 400 bytes.
type Shelf interface {
	// Get returns a value and whether there is one.
	Get(ctx context.Context, key string) ([]byte, bool, error)
	// Put makes or replaces a value.
	Put(ctx context.Context, key string, value []byte) error
	// Delete removes a value; one that is not there is no error.
	Delete(ctx context.Context, key string) error
	// List returns the keys that begin with a prefix, in any order.
	List(ctx context.Context, prefix string) ([]string, error)
}

// SharedFiles keeps files on a shelf that threads share. They outlive the
// thread, and are not forked or rewound with it: what a step did to them stays.
// Of two threads that write a file at the same time, the last one wins. A file
// is one value, so that the shelf's limit of a value is that of a file.
func SharedFiles(s Shelf) Files { return sharedFiles{s} }

type sharedFiles struct{ shelf Shelf }

var _ Files = sharedFiles{}

type sharedFile struct {
	Text     string    `json:"text"`
	Created  time.Time `json:"created"`
	Modified time.Time `json:"modified"`
}

func (s sharedFiles) get(ctx context.Context, p string) (File, error) {
	if s.shelf == nil {
		return File{}, fmt.Errorf("%w: shared files without a shelf", ErrOption)
	}
	raw, ok, err := s.shelf.Get(ctx, p)
	if err != nil {
		return File{}, fmt.Errorf("agent: shared file %s: %w", p, err)
	}
	if !ok {
		return File{}, s.missing(ctx, p)
	}
	var v sharedFile
	if err := json.Unmarshal(raw, &v); err != nil {
		return File{}, fmt.Errorf("agent: shared file %s: %w", p, err)
	}
	return File{Path: p, Text: v.Text, Size: len(v.Text), Created: v.Created, Modified: v.Modified}, nil
}

// missing says what is at a path where no file is.
func (s sharedFiles) missing(ctx context.Context, p string) error {
	inside, err := s.shelf.List(ctx, p+"/")
	switch {
	case err != nil:
		return fmt.Errorf("agent: shared file %s: %w", p, err)
	case len(inside) > 0:
		return isFolder(p)
	}
	return noFile(p)
}

func (s sharedFiles) Read(ctx context.Context, p string) (File, error) {
	p, err := cleanFile(p)
	if err != nil {
		return File{}, err
	}
	return s.get(ctx, p)
}

func (s sharedFiles) Write(ctx context.Context, p, text string) error {
	p, err := cleanFile(p)
	if err != nil {
		return err
	}
	if err := checkFileText(p, text); err != nil {
		return err
	}
	if s.shelf == nil {
		return fmt.Errorf("%w: shared files without a shelf", ErrOption)
	}
	for _, dir := range foldersAbove(p) {
		if _, ok, err := s.shelf.Get(ctx, dir); err != nil {
			return fmt.Errorf("agent: shared file %s: %w", p, err)
		} else if ok {
			return badPath(p, "%s is a file, not a folder", dir)
		}
	}
	now := perdure.Now(ctx)
	v := sharedFile{text, now, now}
	switch old, err := s.get(ctx, p); {
	case err == nil:
		v.Created = old.Created
	case !errors.Is(err, ErrNoFile):
		return err
	}
	raw, err := json.Marshal(v)
	if err != nil {
		return err
	}
	err = s.shelf.Put(ctx, p, raw)
	if errors.Is(err, perdure.ErrTooLarge) {
		return &fileError{p, fmt.Sprintf("it has %d bytes, too many for a file that threads share; split it", len(text)), ErrNotText}
	}
	if err != nil {
		return fmt.Errorf("agent: shared file %s: %w", p, err)
	}
	return nil
}

func (s sharedFiles) Remove(ctx context.Context, p string) error {
	p, err := cleanFile(p)
	if err != nil {
		return err
	}
	if _, err := s.get(ctx, p); err != nil {
		return err
	}
	if err := s.shelf.Delete(ctx, p); err != nil {
		return fmt.Errorf("agent: shared file %s: %w", p, err)
	}
	return nil
}

func (s sharedFiles) List(ctx context.Context, dir string) ([]File, error) {
	dir, err := cleanPath(dir)
	if err != nil {
		return nil, err
	}
	if s.shelf == nil {
		return nil, fmt.Errorf("%w: shared files without a shelf", ErrOption)
	}
	keys, err := s.shelf.List(ctx, strings.TrimSuffix(dir, "/")+"/")
	if err != nil {
		return nil, fmt.Errorf("agent: shared files in %s: %w", dir, err)
	}
	return filesIn(dir, keys, func(p string) (File, error) {
		f, err := s.get(ctx, p)
		if errors.Is(err, ErrNoFile) || errors.Is(err, ErrPath) { // removed since it was listed
			err = nil
		}
		return f, err
	})
}

package archive

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"iter"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
)

func init() {
	Register("file", func(_ context.Context, url string) (Place, error) {
		path := strings.TrimPrefix(strings.TrimPrefix(url, "file:"), "//")
		if path == "" {
			return nil, fmt.Errorf("%w: the URL names no folder; write it like file:DIR", ErrInvalid)
		}
		// One that is missing may be a disk that is not mounted.
		if _, err := os.Stat(path); errors.Is(err, fs.ErrNotExist) {
			return nil, fmt.Errorf("%w: there is no folder %s; create it, or mount it", ErrInvalid, path)
		}
		return Dir(path)
	})
}

// Dir returns the place in a folder. Unlike Open, it creates the folder if it does not
// exist. An object is a file: it is written under another name, synced and renamed, and
// then its folder is synced. Only the user of the process may read the files.
//
// Once the place is in use, the file [MarkFile] in the folder identifies it. If that file
// is missing or different, for example because the disk is not mounted, all methods
// return ErrUnavailable, and nothing is created there.
func Dir(path string) (Place, error) {
	path, err := filepath.Abs(path)
	if err == nil {
		err = os.MkdirAll(path, 0o700)
	}
	if err != nil {
		return nil, failed("opening", path, err)
	}
	d := &dir{path: path}
	if err := d.identify(); err != nil {
		return nil, failed("opening", path, err)
	}
	return d, nil
}

// failed returns an error of the file system as one of the archive.
func failed(doing, name string, err error) error {
	if err == nil || errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) || errors.Is(err, ErrInvalid) || errors.Is(err, ErrUnavailable) {
		return err
	}
	kind := ErrUnavailable
	if slices.ContainsFunc(fullCodes, func(code error) bool { return errors.Is(err, code) }) {
		kind = ErrFull
	}
	return fmt.Errorf("%w: %s %s: %w", kind, doing, name, err)
}

type dir struct {
	path string
	info os.FileInfo // of the folder when it was opened

	mu sync.Mutex
	id string // see mark.go; "" if the folder has no mark yet
}

var (
	_ Place      = (*dir)(nil)
	_ Identified = (*dir)(nil)
)

// partMark begins the names of files that are being written. No object's name has
// a part that begins with a dot.
const partMark = ".part-"

func (d *dir) URL() string { return "file:" + filepath.ToSlash(d.path) }

// file returns the path of the file of an object.
func (d *dir) file(name string) (string, error) {
	if err := CheckName(name); err != nil {
		return "", err
	}
	return filepath.Join(d.path, filepath.FromSlash(name)), nil
}

func (d *dir) Put(ctx context.Context, name string, r io.Reader) error {
	path, err := d.file(name)
	if err != nil {
		return err
	}
	if err := d.check(); err != nil {
		return failed("writing", name, err)
	}
	if err := d.Begin(ctx); err != nil {
		return err
	}
	from := &source{r: r}
	if err = d.put(ctx, path, from); from.err != nil {
		return fmt.Errorf("archive: writing %s: %w", name, from.err)
	}
	return failed("writing", name, err)
}

// source is what is written to an object. It keeps the error of reading it, which is
// none of the place.
type source struct {
	r   io.Reader
	err error
}

func (s *source) Read(p []byte) (int, error) {
	n, err := s.r.Read(p)
	if err != nil && err != io.EOF {
		s.err = err
	}
	return n, err
}

func (d *dir) put(ctx context.Context, path string, r io.Reader) (err error) {
	folder := filepath.Dir(path)
	f, err := d.create(path)
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			f.Close()
			os.Remove(f.Name())
		}
	}()
	if _, err := io.Copy(f, r); err != nil {
		return err
	}
	if err := errors.Join(ctx.Err(), f.Sync()); err != nil {
		return err
	}
	if err := f.Close(); err != nil {
		return err
	}
	if err := os.Rename(f.Name(), path); err != nil {
		return err
	}
	if err := d.syncUp(folder); err != nil {
		return err
	}
	return d.check()
}

// create creates the file that an object is written to, and its folder, which others
// may remove as long as it is empty.
func (d *dir) create(path string) (f *os.File, err error) {
	folder, name := filepath.Split(path)
	for range 100 {
		if err := d.mkdir(filepath.Clean(folder)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, err
		}
		if f, err = os.CreateTemp(folder, partMark+name+"-"); !errors.Is(err, fs.ErrNotExist) {
			break
		}
	}
	return f, err
}

// mkdir creates a folder of the place and those above it, but not the place.
func (d *dir) mkdir(folder string) error {
	if folder == d.path {
		return nil
	}
	if err := d.mkdir(filepath.Dir(folder)); err != nil {
		return err
	}
	if err := os.Mkdir(folder, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	return nil
}

// syncUp syncs a folder and those above it in the place, any of which may be new.
func (d *dir) syncUp(folder string) error {
	for {
		if err := syncFolder(folder); err != nil {
			return err
		}
		if len(folder) <= len(d.path) {
			return nil
		}
		folder = filepath.Dir(folder)
	}
}

func (d *dir) Get(_ context.Context, name string) (io.ReadCloser, error) {
	path, err := d.file(name)
	if err != nil {
		return nil, err
	}
	f, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		if err = d.check(); err == nil {
			return nil, fmt.Errorf("%w: %s in %s", ErrNotFound, name, d.URL())
		}
	}
	if err != nil {
		return nil, failed("reading", name, err)
	}
	return &object{f, name}, nil
}

// object is an object that is read.
type object struct {
	*os.File
	name string
}

func (o *object) Read(p []byte) (int, error) {
	n, err := o.File.Read(p)
	if err == io.EOF {
		return n, err
	}
	return n, failed("reading", o.name, err)
}

func (d *dir) Delete(_ context.Context, name string) error {
	path, err := d.file(name)
	if err != nil {
		return err
	}
	if err := d.check(); err != nil {
		return failed("deleting", name, err)
	}
	folder := filepath.Dir(path)
	for _, file := range append(leftParts(path), path) {
		if err := os.Remove(file); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return failed("deleting", name, err)
		}
	}
	for folder != d.path && os.Remove(folder) == nil { // only if it is empty
		folder = filepath.Dir(folder)
	}
	if err := syncFolder(folder); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return failed("deleting", name, err)
	}
	return failed("deleting", name, d.check())
}

// leftParts returns the files that writers of an object left behind when they died,
// which may hold a part of it. If there is no other object in the folder, they are those
// of all objects there; otherwise someone may be writing them.
func leftParts(path string) []string {
	folder, name := filepath.Split(path)
	files, _ := os.ReadDir(folder)
	others := slices.ContainsFunc(files, func(f fs.DirEntry) bool {
		return f.Name() != name && f.Name() != MarkFile && !strings.HasPrefix(f.Name(), partMark)
	})
	var parts []string
	for _, f := range files {
		if strings.HasPrefix(f.Name(), partMark) && (!others || strings.HasPrefix(f.Name(), partMark+name+"-")) {
			parts = append(parts, filepath.Join(folder, f.Name()))
		}
	}
	return parts
}

func (d *dir) List(ctx context.Context, prefix, after string) iter.Seq2[string, error] {
	return func(yield func(string, error) bool) {
		var names []string
		root := d.path // the deepest folder that holds every name with the prefix
		if i := strings.LastIndexByte(prefix, '/'); i >= 0 {
			if err := CheckName(prefix[:i]); err != nil {
				yield("", err)
				return
			}
			root = filepath.Join(d.path, filepath.FromSlash(prefix[:i]))
		}
		err := filepath.WalkDir(root, func(path string, e fs.DirEntry, err error) error {
			if err != nil {
				if errors.Is(err, fs.ErrNotExist) {
					return nil // deleted meanwhile
				}
				return err
			}
			rel, err := filepath.Rel(d.path, path)
			name := filepath.ToSlash(rel)
			if err == nil && !e.IsDir() && CheckName(name) == nil && strings.HasPrefix(name, prefix) && name > after {
				names = append(names, name)
			}
			return errors.Join(err, ctx.Err())
		})
		if err == nil {
			err = d.check() // what it has not found need not be gone
		}
		if err != nil {
			yield("", failed("listing", d.URL(), err))
			return
		}
		slices.Sort(names) // a walk orders by folder
		for _, name := range names {
			if !yield(name, nil) {
				return
			}
		}
	}
}

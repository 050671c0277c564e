package files

import (
	"context"
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/perdure/perdure"
)

// Composite joins several backends in one tree: at["/memory"] keeps the files below
// "/memory" and sees their paths without that prefix; rest keeps everything else. The
// longest prefix of whole names counts: "/memory.md" is not below "/memory".
func Composite(at map[string]FS, rest FS) FS {
	c := &compositeFS{rest: rest}
	for prefix, f := range at {
		p, err := Clean(prefix)
		if err == nil && (p == "/" || f == nil) {
			err = errors.New("a prefix is below the root, and has files")
		}
		if err != nil {
			c.err = fmt.Errorf("%w: files at %q: %w", perdure.ErrOption, prefix, err)
			continue
		}
		c.mounts = append(c.mounts, mount{p, f})
	}
	slices.SortFunc(c.mounts, func(a, b mount) int { return strings.Compare(b.at, a.at) }) // a longer one comes before its prefix
	for i := 1; i < len(c.mounts); i++ {
		if c.mounts[i].at == c.mounts[i-1].at {
			c.err = fmt.Errorf("%w: files at %q twice", perdure.ErrOption, c.mounts[i].at)
		}
	}
	return c
}

type mount struct {
	at string // "" for the rest
	fs FS
}

type compositeFS struct {
	mounts []mount // the longest first
	rest   FS
	err    error
}

var (
	_ FS       = (*compositeFS)(nil)
	_ stateful = (*compositeFS)(nil)
	_ replacer = (*compositeFS)(nil)
)

// find returns the backend that keeps a path, and the path there.
func (c *compositeFS) find(p string) (mount, string, error) {
	if c.err != nil {
		return mount{}, "", c.err
	}
	for _, m := range c.mounts {
		if p == m.at {
			return m, "/", nil
		}
		if rest, ok := pathBelow(m.at, p); ok {
			return m, "/" + rest, nil
		}
	}
	if c.rest == nil {
		var all []string
		for _, m := range slices.Backward(c.mounts) {
			all = append(all, m.at)
		}
		return mount{}, "", badPath(p, "files can only be below %s", strings.Join(all, ", "))
	}
	return mount{"", c.rest}, p, nil
}

// holdsMount reports whether a path is a prefix or a folder above one.
func (c *compositeFS) holdsMount(p string) bool {
	return slices.ContainsFunc(c.mounts, func(m mount) bool { _, below := pathBelow(p, m.at); return below || m.at == p })
}

// onFile calls fn with the backend that keeps a file, and its path there.
func (c *compositeFS) onFile(p string, fn func(f FS, inner string) error) error {
	p, err := CleanFile(p)
	if err != nil {
		return err
	}
	m, inner, err := c.find(p)
	if err != nil {
		return err
	}
	if c.holdsMount(p) {
		return isFolder(p)
	}
	return m.below(fn(m.fs, inner))
}

// below puts the path of an error below the prefix.
func (m mount) below(err error) error {
	e, ok := errors.AsType[*pathError](err)
	if !ok || m.at == "" {
		return err
	}
	moved := *e
	moved.path = path.Join(m.at, e.path)
	return &moved
}

func (c *compositeFS) inState(p string) bool {
	m, inner, err := c.find(p)
	return err == nil && InState(m.fs, inner)
}

func (c *compositeFS) replace(ctx context.Context, p, old, new string) error {
	return c.onFile(p, func(f FS, inner string) error { return Replace(ctx, f, inner, old, new) })
}

func (c *compositeFS) Read(ctx context.Context, p string) (file File, err error) {
	err = c.onFile(p, func(f FS, inner string) (err error) {
		file, err = f.Read(ctx, inner)
		file.Path = p
		return err
	})
	return file, err
}

func (c *compositeFS) Write(ctx context.Context, p, text string) error {
	return c.onFile(p, func(f FS, inner string) error { return f.Write(ctx, inner, text) })
}

func (c *compositeFS) Remove(ctx context.Context, p string) error {
	return c.onFile(p, func(f FS, inner string) error { return f.Remove(ctx, inner) })
}

func (c *compositeFS) List(ctx context.Context, dir string) ([]File, error) {
	dir, err := Clean(dir)
	if err != nil {
		return nil, err
	}
	m, inner, err := c.find(dir)
	var all []File
	if err != nil && !errors.Is(err, ErrPath) { // if nothing is kept here, prefixes may be below
		return nil, err
	}
	if err == nil {
		own, err := m.fs.List(ctx, inner)
		if err != nil {
			return nil, m.below(err)
		}
		for _, f := range own {
			f.Path = path.Join("/", m.at, f.Path)
			if !c.holdsMount(f.Path) {
				all = append(all, f)
			}
		}
	}
	for _, m := range c.mounts {
		if rest, ok := pathBelow(dir, m.at); ok {
			name, _, _ := strings.Cut(rest, "/")
			all = append(all, File{Path: path.Join(dir, name), Dir: true})
		}
	}
	sortByPath(all)
	return slices.CompactFunc(all, func(a, b File) bool { return a.Path == b.Path }), nil
}

package agent

import (
	"context"
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"
)

// CompositeFiles puts files of several backends into one tree: what is below
// "/memory" is kept by at["/memory"], which sees its own paths without that
// prefix, and everything else by rest. The longest prefix counts, of whole
// names: "/memory.md" is not below "/memory".
func CompositeFiles(at map[string]Files, rest Files) Files {
	c := &compositeFiles{rest: rest}
	for prefix, f := range at {
		p, err := cleanPath(prefix)
		if err == nil && (p == "/" || f == nil) {
			err = errors.New("a prefix is below the root, and has files")
		}
		if err != nil {
			c.err = fmt.Errorf("%w: files at %q: %w", ErrOption, prefix, err)
			continue
		}
		c.mounts = append(c.mounts, fileMount{p, f})
	}
	slices.SortFunc(c.mounts, func(a, b fileMount) int { return strings.Compare(b.at, a.at) }) // a longer one comes before its prefix
	for i := 1; i < len(c.mounts); i++ {
		if c.mounts[i].at == c.mounts[i-1].at {
			c.err = fmt.Errorf("%w: files at %q twice", ErrOption, c.mounts[i].at)
		}
	}
	return c
}

type fileMount struct {
	at    string // "" for the rest
	files Files
}

type compositeFiles struct {
	mounts []fileMount // the longest first
	rest   Files
	err    error
}

var (
	_ Files    = (*compositeFiles)(nil)
	_ stateful = (*compositeFiles)(nil)
	_ replacer = (*compositeFiles)(nil)
)

// of returns where a path is kept, and its path there.
func (c *compositeFiles) of(p string) (fileMount, string, error) {
	if c.err != nil {
		return fileMount{}, "", c.err
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
		for _, m := range c.mounts {
			all = append(all, m.at)
		}
		slices.Sort(all)
		return fileMount{}, "", badPath(p, "files can only be below %s", strings.Join(all, ", "))
	}
	return fileMount{"", c.rest}, p, nil
}

// file returns where a file is kept. A folder in which others are kept cannot
// be a file.
func (c *compositeFiles) file(p string) (fileMount, string, error) {
	p, err := cleanFile(p)
	if err != nil {
		return fileMount{}, "", err
	}
	m, inner, err := c.of(p)
	if err != nil {
		return m, "", err
	}
	for _, other := range c.mounts {
		if _, ok := pathBelow(p, other.at); ok || other.at == p {
			return m, "", isFolder(p)
		}
	}
	return m, inner, nil
}

// told puts the path of an error below the prefix.
func (m fileMount) told(err error) error {
	e, ok := errors.AsType[*fileError](err)
	if !ok || m.at == "" {
		return err
	}
	moved := *e
	moved.path = path.Join(m.at, e.path)
	return &moved
}

func (c *compositeFiles) commits(p string) bool {
	m, inner, err := c.of(p)
	return err == nil && commitsWithStep(m.files, inner)
}

func (c *compositeFiles) replace(ctx context.Context, p, old, new string) error {
	m, inner, err := c.file(p)
	if err != nil {
		return err
	}
	return m.told(replaceAll(ctx, m.files, inner, old, new))
}

func (c *compositeFiles) Read(ctx context.Context, p string) (File, error) {
	m, inner, err := c.file(p)
	if err != nil {
		return File{}, err
	}
	f, err := m.files.Read(ctx, inner)
	f.Path = p
	return f, m.told(err)
}

func (c *compositeFiles) Write(ctx context.Context, p, text string) error {
	m, inner, err := c.file(p)
	if err != nil {
		return err
	}
	return m.told(m.files.Write(ctx, inner, text))
}

func (c *compositeFiles) Remove(ctx context.Context, p string) error {
	m, inner, err := c.file(p)
	if err != nil {
		return err
	}
	return m.told(m.files.Remove(ctx, inner))
}

func (c *compositeFiles) List(ctx context.Context, dir string) ([]File, error) {
	dir, err := cleanPath(dir)
	if err != nil {
		return nil, err
	}
	m, inner, err := c.of(dir)
	var all []File
	if err != nil && !errors.Is(err, ErrPath) { // if nothing is kept here, prefixes may be below
		return nil, err
	}
	if err == nil {
		own, err := m.files.List(ctx, inner)
		if err != nil {
			return nil, m.told(err)
		}
		for _, f := range own {
			f.Path = path.Join("/", m.at, f.Path)
			if !slices.ContainsFunc(c.mounts, func(o fileMount) bool { _, in := pathBelow(f.Path, o.at); return in || o.at == f.Path }) {
				all = append(all, f)
			}
		}
	}
	for _, o := range c.mounts {
		if rest, ok := pathBelow(dir, o.at); ok {
			name, _, _ := strings.Cut(rest, "/")
			all = append(all, File{Path: path.Join(dir, name), Dir: true})
		}
	}
	sortFiles(all)
	return slices.CompactFunc(all, func(a, b File) bool { return a.Path == b.Path }), nil
}

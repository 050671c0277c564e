// Package files keeps the text files of agents: in the thread's state, in a
// folder on disk, in the owner's memory, or in a database of your own.
// agent.Options.Files gives an agent files, with tools to use them. The
// package may import perdure and agent/memory; package agent builds on it.
package files

import (
	"context"
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/perdure/perdure"
)

// FS holds the files of an agent. Paths are absolute and clean, like
// "/notes/plan.md". A path names a file or a folder, never both, and a folder
// exists as long as there is a file in it. [State], [Disk], [Memory], [Shared]
// and [Composite] return implementations; agent.FileTools makes tools of any.
// All methods are called inside a run, those that write inside a leaf step.
type FS interface {
	// Read returns a file with its text, or [ErrNotFound].
	Read(ctx context.Context, path string) (File, error)
	// Write creates a file, or replaces its text.
	Write(ctx context.Context, path, text string) error
	// Remove removes a file, or returns [ErrNotFound].
	Remove(ctx context.Context, path string) error
	// List returns what is directly in a folder, ordered by path and without
	// texts. A folder that does not exist is empty.
	List(ctx context.Context, dir string) ([]File, error)
}

// File is a file of an agent or, in a list, a folder.
type File struct {
	Path     string    `json:"path"`
	Text     string    `json:"text,omitempty"`
	Size     int       `json:"size"` // in bytes
	Created  time.Time `json:"created,omitzero"`
	Modified time.Time `json:"modified,omitzero"`
	Dir      bool      `json:"dir,omitempty"` // it is a folder
}

// MaxSize is the largest size of a file, in bytes.
const MaxSize = 4 << 20

// Errors of files. They also match when read back from the journal.
var (
	// ErrNotFound: there is no file at the path.
	ErrNotFound = perdure.Coded("agent-no-file", errors.New("agent: no such file"))
	// ErrPath: no file can have the path, or it leads through a file.
	ErrPath = perdure.Coded("agent-path", errors.New("agent: bad path"))
	// ErrNotText: the file is not UTF-8 text, or is larger than [MaxSize].
	ErrNotText = perdure.Coded("agent-not-text", errors.New("agent: not a text that can be a file"))
)

// pathError is an error about a path, which a composite can put below its
// prefix.
type pathError struct {
	path string
	why  string // what a model can do about it
	err  error
}

func (e *pathError) Error() string {
	if e.why == "" {
		return fmt.Sprintf("%v: %s", e.err, e.path)
	}
	return fmt.Sprintf("%v: %s: %s", e.err, e.path, e.why)
}

func (e *pathError) Unwrap() error { return e.err }

func badPath(p, why string, args ...any) error {
	return &pathError{p, fmt.Sprintf(why, args...), ErrPath}
}

func isFolder(p string) error { return badPath(p, "it is a folder; give the path of a file") }

func notFound(p string) error { return &pathError{p, "", ErrNotFound} }

// listFolder makes the list of a folder from the paths of all files, in any
// order. Describe returns what is known of a file directly in it.
func listFolder(dir string, paths []string, describe func(p string) (File, error)) ([]File, error) {
	var all []File
	folders := map[string]bool{}
	for _, p := range paths {
		rest, ok := pathBelow(dir, p)
		if !ok {
			continue
		}
		name, _, deeper := strings.Cut(rest, "/")
		if !deeper {
			f, err := describe(p)
			if err != nil {
				return nil, err
			}
			f.Path, f.Text = p, ""
			all = append(all, f)
		} else if !folders[name] {
			folders[name] = true
			all = append(all, File{Path: path.Join(dir, name), Dir: true})
		}
	}
	sortByPath(all)
	return all, nil
}

func sortByPath(all []File) {
	slices.SortFunc(all, func(a, b File) int { return strings.Compare(a.Path, b.Path) })
}

// InState reports whether a path is kept in the thread's state: a change there
// commits with the step that makes it. Elsewhere a change happens at least once.
func InState(f FS, path string) bool {
	s, ok := f.(stateful)
	return ok && s.inState(path)
}

type stateful interface{ inState(path string) bool }

// Replace replaces every occurrence of old in a file. In the thread's state only the
// change is written, not the whole text.
func Replace(ctx context.Context, f FS, path, old, new string) error {
	if r, ok := f.(replacer); ok {
		return r.replace(ctx, path, old, new)
	}
	file, err := f.Read(ctx, path)
	if err != nil {
		return err
	}
	return f.Write(ctx, path, strings.ReplaceAll(file.Text, old, new))
}

type replacer interface {
	replace(ctx context.Context, path, old, new string) error
}

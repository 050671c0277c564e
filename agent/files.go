package agent

import (
	"context"
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/perdure/perdure"
)

// Files is where the files of an agent are. Paths are absolute and clean, like
// "/notes/plan.md"; a path is a file or a folder, never both, and folders are
// there as long as a file is in them. There are [StateFiles], [DiskFiles],
// [MemoryFiles], [SharedFiles] and [CompositeFiles]; [FileTools] makes tools of
// them. All methods are called inside a run, those that write inside a leaf step.
type Files interface {
	// Read returns a file with its text, or [ErrNoFile].
	Read(ctx context.Context, path string) (File, error)
	// Write makes a file, or replaces the text of one.
	Write(ctx context.Context, path, text string) error
	// Remove removes a file, or returns [ErrNoFile].
	Remove(ctx context.Context, path string) error
	// List returns what is directly in a folder, in the order of paths and
	// without texts. A folder that is not there is empty.
	List(ctx context.Context, dir string) ([]File, error)
}

// File is a file of an agent, or, in a list, a folder.
type File struct {
	Path     string    `json:"path"`
	Text     string    `json:"text,omitempty"`
	Size     int       `json:"size"` // in bytes
	Created  time.Time `json:"created,omitzero"`
	Modified time.Time `json:"modified,omitzero"`
	Dir      bool      `json:"dir,omitempty"` // it is a folder
}

// MaxFile is how many bytes a file may have.
const MaxFile = 4 << 20

// maxPath leaves room for what a backend puts before a path.
const maxPath = 400

// What can go wrong with files.
var (
	// ErrNoFile: there is no file at the path.
	ErrNoFile = perdure.Coded("agent-no-file", errors.New("agent: no such file"))
	// ErrPath: the path is none that a file can have, or leads through one.
	ErrPath = perdure.Coded("agent-path", errors.New("agent: bad path"))
	// ErrNotText: the file is not text in UTF-8, or larger than [MaxFile].
	ErrNotText = perdure.Coded("agent-not-text", errors.New("agent: not a text that can be a file"))
)

// fileError is an error of a path, which a composite can put below its prefix.
type fileError struct {
	path string
	why  string // what a model can do about it
	err  error
}

func (e *fileError) Error() string {
	if e.why == "" {
		return fmt.Sprintf("%v: %s", e.err, e.path)
	}
	return fmt.Sprintf("%v: %s: %s", e.err, e.path, e.why)
}

func (e *fileError) Unwrap() error { return e.err }

func badPath(p, why string, args ...any) error {
	return &fileError{p, fmt.Sprintf(why, args...), ErrPath}
}

func isFolder(p string) error { return badPath(p, "it is a folder; give the path of a file") }

func noFile(p string) error { return &fileError{p, "", ErrNoFile} }

// cleanPath returns a path as backends get it. What could mean different things
// to different systems is refused, not guessed at.
func cleanPath(p string) (string, error) {
	switch {
	case !utf8.ValidString(p):
		return "", badPath(fmt.Sprintf("%q", p), "it is not UTF-8")
	case strings.ContainsFunc(p, unicode.IsControl):
		return "", badPath(fmt.Sprintf("%q", p), "it has control characters")
	case strings.Contains(p, `\`):
		return "", badPath(p, "folders are separated by /")
	case slices.Contains(strings.Split(p, "/"), ".."):
		return "", badPath(p, "it has .. in it; give the path from the root, such as /notes/plan.md")
	}
	p = path.Clean("/" + p)
	if len(p) > maxPath {
		return "", badPath(p[:40]+"…", "it is longer than %d bytes", maxPath)
	}
	for name := range strings.SplitSeq(p, "/") {
		if len(name) > 200 {
			return "", badPath(p, "a name in it is longer than 200 bytes")
		}
	}
	return p, nil
}

// cleanFile returns the path of a file, which the root is not.
func cleanFile(p string) (string, error) {
	c, err := cleanPath(p)
	switch {
	case err != nil:
	case c == "/":
		err = isFolder(c)
	case strings.HasSuffix(p, "/"):
		err = badPath(p, "it ends with /, as the path of a folder does; give the path of a file")
	}
	return c, err
}

// checkFileText returns an error if a text cannot be that of a file.
func checkFileText(p, text string) error {
	if len(text) > MaxFile {
		return &fileError{p, fmt.Sprintf("it has more than the %d bytes that are allowed; split it", MaxFile), ErrNotText}
	}
	if !utf8.ValidString(text) {
		return &fileError{p, "it is not UTF-8", ErrNotText}
	}
	return nil
}

// foldersAbove returns the folders above a path, without the root.
func foldersAbove(p string) []string {
	var all []string
	for i := 1; i < len(p); i++ {
		if p[i] == '/' {
			all = append(all, p[:i])
		}
	}
	return all
}

// pathBelow returns the path inside of a folder, and whether it is inside.
func pathBelow(dir, p string) (string, bool) {
	if dir == "/" {
		return p[1:], p != "/"
	}
	return strings.CutPrefix(p, dir+"/")
}

// filesIn makes the list of a folder from the paths of all files, in any
// order: file says what is known of one directly in it.
func filesIn(dir string, paths []string, file func(p string) (File, error)) ([]File, error) {
	var all []File
	dirs := map[string]bool{}
	for _, p := range paths {
		rest, ok := pathBelow(dir, p)
		if !ok {
			continue
		}
		name, _, deeper := strings.Cut(rest, "/")
		if !deeper {
			f, err := file(p)
			if err != nil {
				return nil, err
			}
			f.Path, f.Text = p, ""
			all = append(all, f)
		} else if !dirs[name] {
			dirs[name] = true
			all = append(all, File{Path: path.Join(dir, name), Dir: true})
		}
	}
	sortFiles(all)
	return all, nil
}

// stateful is what backends are whose changes commit with the step that makes
// them. What a step does to others happens at least once.
type stateful interface{ commits(path string) bool }

func commitsWithStep(f Files, p string) bool {
	s, ok := f.(stateful)
	return ok && s.commits(p)
}

func sortFiles(all []File) {
	slices.SortFunc(all, func(a, b File) int { return strings.Compare(a.Path, b.Path) })
}

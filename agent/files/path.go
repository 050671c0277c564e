package files

import (
	"fmt"
	"path"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"
)

// MaxPath is the length of the longest path, in bytes. It leaves room for a prefix
// that a backend adds.
const MaxPath = 400

// Clean returns a path in the form that backends accept. Paths that could mean
// different things to different systems are refused.
func Clean(p string) (string, error) {
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
	if len(p) > MaxPath {
		return "", badPath(p[:40]+"…", "it is longer than %d bytes", MaxPath)
	}
	for name := range strings.SplitSeq(p, "/") {
		if len(name) > 200 {
			return "", badPath(p, "a name in it is longer than 200 bytes")
		}
	}
	return p, nil
}

// CleanFile is [Clean] for the path of a file. It refuses the root.
func CleanFile(p string) (string, error) {
	c, err := Clean(p)
	switch {
	case err != nil:
	case c == "/":
		err = isFolder(c)
	case strings.HasSuffix(p, "/"):
		err = badPath(p, "it ends with /, as the path of a folder does; give the path of a file")
	}
	return c, err
}

// cleanWrite is [CleanFile] for a file that is to have a text.
func cleanWrite(p, text string) (string, error) {
	p, err := CleanFile(p)
	if err == nil {
		err = checkText(p, text)
	}
	return p, err
}

// checkText returns an error if a text cannot be that of a file.
func checkText(p, text string) error {
	if len(text) > MaxSize {
		return &pathError{p, fmt.Sprintf("it has more than the %d bytes that are allowed; split it", MaxSize), ErrNotText}
	}
	if !utf8.ValidString(text) {
		return &pathError{p, "it is not UTF-8", ErrNotText}
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

// pathBelow returns the rest of a path inside a folder, and whether it is inside.
func pathBelow(dir, p string) (string, bool) {
	if dir == "/" {
		return p[1:], p != "/"
	}
	return strings.CutPrefix(p, dir+"/")
}

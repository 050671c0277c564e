package files

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"slices"
	"strings"
	"syscall"
	"unicode"

	"github.com/perdure/perdure"
)

// Disk keeps files in a folder of the machine, which is created when the first
// file is written. They are not forked or rewound with the thread: what a step did
// to them stays, and every thread that uses the folder sees it. Nothing outside
// the folder is read or written: links are refused, as is everything that is not
// a plain file. (A hard link is a plain file, and is followed if someone puts one
// there.) Names that some systems do not accept, such as "a:b", "nul" or "end.",
// are refused too. Writing replaces a file as a whole, so readers see either the
// old text or the new one. File.Created is not set.
func Disk(root string) FS { return diskFS{root} }

type diskFS struct{ root string }

var _ FS = diskFS{}

// partSuffix ends the names of files that are being written.
const partSuffix = ".perdure-part"

// diskName returns a path as os.Root takes it.
func diskName(p string) (string, error) {
	for name := range strings.SplitSeq(p[1:], "/") {
		if why := badName(name); why != "" {
			return "", badPath(p, "%s", why)
		}
	}
	return p[1:], nil
}

// badName returns why a name is not one that all systems take and understand
// alike.
func badName(name string) string {
	switch {
	case strings.ContainsAny(name, `\:*?"<>|`):
		return `a name has one of \ : * ? " < > |`
	case strings.HasSuffix(name, ".") || strings.HasSuffix(name, " "):
		return "a name ends with a dot or a space"
	case strings.HasSuffix(strings.ToLower(name), partSuffix):
		return "the name is kept for files that are being written"
	}
	stem, _, _ := strings.Cut(strings.ToUpper(name), ".")
	stem = strings.TrimRight(stem, " ")
	switch stem {
	case "CON", "PRN", "AUX", "NUL", "CONIN$", "CONOUT$", "CLOCK$":
		return "the name is that of a device"
	}
	for _, device := range []string{"COM", "LPT"} {
		if n, ok := strings.CutPrefix(stem, device); ok && (len(n) == 1 && n >= "0" && n <= "9" || n == "¹" || n == "²" || n == "³") {
			return "the name is that of a device"
		}
	}
	return ""
}

// open opens the folder, each time anew, so that users have nothing to close.
func (d diskFS) open(write bool) (*os.Root, error) {
	if d.root == "" {
		return nil, fmt.Errorf("%w: disk files without a folder", perdure.ErrOption)
	}
	if write {
		if err := os.MkdirAll(d.root, 0o777); err != nil {
			return nil, fmt.Errorf("agent: the folder of files: %w", err)
		}
	}
	return os.OpenRoot(d.root)
}

// lookAt returns what is at a path, nil for nothing. Links on the way are
// refused; should one appear meanwhile, os.Root keeps it from leading outside.
func lookAt(root *os.Root, p, name string) (fs.FileInfo, error) {
	for i := range len(name) + 1 {
		if i < len(name) && name[i] != '/' {
			continue
		}
		info, err := root.Lstat(name[:i])
		switch {
		case errors.Is(err, fs.ErrNotExist):
			return nil, nil
		case err != nil:
			return nil, diskError(p, err)
		case i < len(name) && info.Mode().IsRegular():
			return nil, badPath(p, "/%s is a file, not a folder", name[:i])
		case i < len(name) && !info.IsDir(), !info.IsDir() && !info.Mode().IsRegular():
			return nil, badPath(p, "/%s is a link or device, and only plain files and folders are used", name[:i])
		}
		if spelled, err := hasExactName(root, name[:i], info); err != nil || !spelled {
			if err != nil {
				return nil, diskError(p, err)
			}
			return nil, badPath(p, "/%s has another spelling on this disk; use ls to see it", name[:i])
		}
		if i == len(name) {
			return info, nil
		}
	}
	return nil, nil
}

// hasExactName reports whether what is at a path has exactly that name. Some disks
// also find it under names that differ in case or in how letters are composed,
// which a check of the path would not recognise.
func hasExactName(root *os.Root, name string, info fs.FileInfo) (bool, error) {
	dir, base := path.Split(name)
	plain := strings.IndexFunc(base, func(c rune) bool { return c > unicode.MaxASCII }) < 0
	other := strings.Map(func(c rune) rune {
		if unicode.IsUpper(c) {
			return unicode.ToLower(c)
		}
		return unicode.ToUpper(c)
	}, base)
	if plain {
		found, err := root.Lstat(dir + other)
		if other == base || err != nil || !os.SameFile(found, info) {
			return true, nil
		}
	}
	f, err := root.Open(path.Join(".", dir))
	if err != nil {
		return false, err
	}
	defer f.Close()
	names, err := f.Readdirnames(-1)
	return slices.Contains(names, base), err
}

// diskError returns an error about a path that does not reveal where the folder
// is.
func diskError(p string, err error) error {
	if pe, ok := errors.AsType[*fs.PathError](err); ok {
		err = pe.Err
	}
	if le, ok := errors.AsType[*os.LinkError](err); ok {
		err = le.Err
	}
	return &pathError{p, "", fmt.Errorf("agent: file on disk: %w", err)}
}

// at opens the folder and looks at the path of a file in it. What it returns
// has to be closed if there is no error.
func (d diskFS) openAt(p string, write bool) (root *os.Root, name string, info fs.FileInfo, err error) {
	if p, err = CleanFile(p); err != nil {
		return nil, "", nil, err
	}
	if name, err = diskName(p); err != nil {
		return nil, "", nil, err
	}
	if root, err = d.open(write); err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			return nil, "", nil, notFound(p)
		}
		return nil, "", nil, err
	}
	info, err = lookAt(root, p, name)
	if err == nil && info != nil && info.IsDir() {
		err = isFolder(p)
	}
	if err != nil {
		_ = root.Close()
		return nil, "", nil, err
	}
	return root, name, info, nil
}

func (d diskFS) Read(_ context.Context, p string) (File, error) {
	root, name, info, err := d.openAt(p, false)
	if err != nil {
		return File{}, err
	}
	defer root.Close()
	if info == nil {
		return File{}, notFound(p)
	}
	// Without O_NONBLOCK a pipe that took the place of the file would block.
	f, err := root.OpenFile(name, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return File{}, notFound(p)
	}
	if err != nil {
		return File{}, diskError(p, err)
	}
	defer f.Close()
	if info, err = f.Stat(); err != nil {
		return File{}, diskError(p, err)
	}
	if !info.Mode().IsRegular() {
		return File{}, badPath(p, "it is a link or device, and only plain files and folders are used")
	}
	text, err := io.ReadAll(io.LimitReader(f, MaxSize+1))
	if err != nil {
		return File{}, diskError(p, err)
	}
	if err := checkText(p, string(text)); err != nil {
		return File{}, err
	}
	return File{Path: p, Text: string(text), Size: len(text), Modified: info.ModTime().UTC()}, nil
}

func (d diskFS) Write(_ context.Context, p, text string) error {
	if err := checkText(p, text); err != nil {
		return err
	}
	root, name, info, err := d.openAt(p, true)
	if err != nil {
		return err
	}
	defer root.Close()
	mode := fs.FileMode(0o666)
	if info != nil {
		mode = info.Mode().Perm()
	}
	part := path.Join(path.Dir(name), "."+rand.Text()+partSuffix)
	for range 3 { // another removal may take the folder away as empty
		if err = root.MkdirAll(path.Dir(name), 0o777); err == nil {
			err = writePart(root, part, text, mode, info != nil)
		}
		if !errors.Is(err, fs.ErrNotExist) {
			break
		}
	}
	if err == nil {
		err = root.Rename(part, name)
	}
	if err != nil {
		_ = root.Remove(part)
		return diskError(p, err)
	}
	syncFolder(root, path.Dir(name))
	return nil
}

// writePart writes a new file, which is safe on disk when it returns.
func writePart(root *os.Root, name, text string, mode fs.FileMode, keep bool) error {
	f, err := root.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, mode)
	if err != nil {
		return err
	}
	_, err = io.WriteString(f, text)
	if keep { // whatever the umask says of new files
		err = errors.Join(err, f.Chmod(mode))
	}
	return errors.Join(err, f.Sync(), f.Close())
}

// syncFolder makes a rename last. Where folders cannot be synced, it need not.
func syncFolder(root *os.Root, dir string) {
	if f, err := root.Open(dir); err == nil {
		_ = f.Sync()
		_ = f.Close()
	}
}

func (d diskFS) Remove(_ context.Context, p string) error {
	root, name, info, err := d.openAt(p, false)
	if err != nil {
		return err
	}
	defer root.Close()
	if info == nil {
		return notFound(p)
	}
	switch err := root.Remove(name); {
	case errors.Is(err, fs.ErrNotExist):
		return notFound(p)
	case err != nil:
		return diskError(p, err)
	}
	dir := path.Dir(name)
	for dir != "." && root.Remove(dir) == nil { // empty folders are no folders
		dir = path.Dir(dir)
	}
	syncFolder(root, dir)
	return nil
}

func (d diskFS) List(_ context.Context, dir string) ([]File, error) {
	dir, err := Clean(dir)
	if err != nil {
		return nil, err
	}
	name := "."
	if dir != "/" {
		if name, err = diskName(dir); err != nil {
			return nil, err
		}
	}
	root, err := d.open(false)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer root.Close()
	if info, err := lookAt(root, dir, name); err != nil || info == nil || !info.IsDir() {
		return nil, err
	}
	f, err := root.Open(name)
	if err != nil {
		return nil, diskError(dir, err)
	}
	defer f.Close()
	entries, err := f.ReadDir(-1)
	if err != nil {
		return nil, diskError(dir, err)
	}
	var all []File
	for _, e := range entries {
		p := path.Join(dir, e.Name())
		if clean, err := CleanFile(p); err != nil || clean != p || badName(e.Name()) != "" {
			continue // nobody could name it
		}
		info, err := root.Lstat(path.Join(name, e.Name())) // that of the entry would not go through the root
		switch {
		case err != nil: // removed since
		case info.IsDir():
			all = append(all, File{Path: p, Dir: true})
		case info.Mode().IsRegular():
			all = append(all, File{Path: p, Size: int(info.Size()), Modified: info.ModTime().UTC()})
		}
	}
	sortByPath(all)
	return all, nil
}

package files

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
)

const outsideSecret = "what is outside the folder"

// diskWorld is a folder for files with links that lead out of it, beside a file
// and a folder that must stay as they are.
func diskWorld(t *testing.T) (root string, intact func(t *testing.T)) {
	t.Helper()
	base := t.TempDir()
	root = filepath.Join(base, "root")
	secret := filepath.Join(base, "secret.txt")
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	must(os.MkdirAll(filepath.Join(root, "dir"), 0o777))
	must(os.MkdirAll(filepath.Join(base, "outside"), 0o777))
	must(os.WriteFile(secret, []byte(outsideSecret), 0o666))
	must(os.WriteFile(filepath.Join(base, "outside", "in.txt"), []byte(outsideSecret), 0o666))
	must(os.WriteFile(filepath.Join(root, "dir", "ok.txt"), []byte("inside"), 0o666))
	for name, target := range map[string]string{
		"abs-link":  secret,
		"rel-link":  "../secret.txt",
		"dir-link":  "../outside",
		"abs-dir":   filepath.Join(base, "outside"),
		"chain":     "rel-link",
		"dir/up":    "../..",
		"self":      "self",
		"in-link":   "dir/ok.txt",
		"in-dir":    "dir",
		"dangling":  "../new.txt",
		"dev-link":  os.DevNull,
		"root-link": ".",
	} {
		must(os.Symlink(target, filepath.Join(root, filepath.FromSlash(name))))
	}
	return root, func(t *testing.T) {
		t.Helper()
		var got []string
		must(filepath.WalkDir(base, func(p string, d fs.DirEntry, err error) error {
			if p == root {
				return fs.SkipDir
			}
			rel, _ := filepath.Rel(base, p)
			got = append(got, filepath.ToSlash(rel))
			return err
		}))
		if diff := cmp.Diff([]string{".", "outside", "outside/in.txt", "secret.txt"}, got); diff != "" {
			t.Errorf("outside the folder changed:\n%s", diff)
		}
		for _, p := range []string{secret, filepath.Join(base, "outside", "in.txt")} {
			if text, err := os.ReadFile(p); err != nil || string(text) != outsideSecret {
				t.Errorf("%s is %q, %v", p, text, err)
			}
		}
	}
}

func TestNothingEscapesADiskRoot(t *testing.T) {
	root, intact := diskWorld(t)
	f := Disk(root)
	hostile := []string{
		"..", "../secret.txt", "/../secret.txt", "/dir/../../secret.txt", "dir/../../secret.txt", "/..", "/dir/..", "/./../secret.txt",
		"//../secret.txt", "/...../../../secret.txt", "/dir//..//..//secret.txt",
		`..\secret.txt`, `/dir\..\..\secret.txt`, `C:\secret.txt`, `C:/secret.txt`, `c:secret.txt`, `\\server\share`, `/\\?\C:\x`, `//./C:/x`,
		"/abs-link", "/rel-link", "/dir-link/in.txt", "/abs-dir/in.txt", "/chain", "/dir/up/secret.txt", "/self", "/in-link", "/in-dir/ok.txt",
		"/dangling", "/dir-link/new.txt", "/dir-link", "/dev-link", "/root-link/dir/ok.txt",
		"/nul", "/NUL", "/Con", "/con.txt", "/aux.c", "/dir/PRN", "/com1", "/LPT9.log", "/com¹", "/nul .txt", "/conin$",
		"/file.txt:stream", "/file.txt::$DATA", "/a|b", "/a<b", "/a*b", "/a?b", `/a"b`, "/end.", "/end ", "/dir./x", "/dir /x", "/. ./x",
		"/.x.perdure-part", "/X.PERDURE-PART",
		"", "/", "//", ".", "/.", "/dir", "/dir/", "/dir/ok.txt/", "/dir/ok.txt/below",
		"/a\x00b", "/a\nb", "/a\x7fb", "/\xff\xfe", "/a\u0085b", "/" + strings.Repeat("a", 201), strings.Repeat("/aaaaaaaaa", 41),
	}
	for _, p := range hostile {
		if got, err := f.Read(t.Context(), p); err == nil {
			t.Errorf("Read(%q) = %q, want an error", p, got.Text)
		} else if strings.Contains(err.Error(), filepath.Dir(root)) {
			t.Errorf("Read(%q) tells where the folder is: %v", p, err)
		}
		if err := f.Write(t.Context(), p, "escaped"); !errors.Is(err, ErrPath) {
			t.Errorf("Write(%q): %v, want ErrPath", p, err)
		}
		if err := f.Remove(t.Context(), p); !errors.Is(err, ErrPath) {
			t.Errorf("Remove(%q): %v, want ErrPath", p, err)
		}
		if all, err := f.List(t.Context(), p); err == nil {
			for _, e := range all {
				if !slices.Contains([]string{"/dir", "/dir/ok.txt"}, e.Path) {
					t.Errorf("List(%q) shows %s", p, e.Path)
				}
			}
		}
	}
	intact(t)
	if got, err := f.Read(t.Context(), "/dir/ok.txt"); err != nil || got.Text != "inside" {
		t.Errorf("a plain file reads %q, %v", got.Text, err)
	}
	entries, err := os.ReadDir(root)
	if err != nil || len(entries) != 12 {
		t.Errorf("the folder has %d entries, %v; want those of the start", len(entries), err)
	}
}

// TestLinksThatComeAndGoDoNotLeadOutside swaps a folder and a file for links
// while they are used.
func TestLinksThatComeAndGoDoNotLeadOutside(t *testing.T) {
	root, intact := diskWorld(t)
	f := Disk(root)
	stop := make(chan struct{})
	var swaps sync.WaitGroup
	for _, at := range []struct{ name, target string }{{"sub", "../outside"}, {"in.txt", "../secret.txt"}} {
		swaps.Go(func() {
			name := filepath.Join(root, at.name)
			for range 1_000_000 {
				select {
				case <-stop:
					return
				default:
				}
				_ = os.Symlink(at.target, name)
				runtime.Gosched()
				_ = os.Remove(name)
				if at.name == "sub" {
					_ = os.Mkdir(name, 0o777)
					runtime.Gosched()
					_ = os.RemoveAll(name)
				}
			}
		})
	}
	ctx := context.Background()
	for range 400 {
		for _, p := range []string{"/sub/in.txt", "/in.txt", "/sub/new.txt"} {
			if got, err := f.Read(ctx, p); err == nil && got.Text == outsideSecret {
				t.Error("read what is outside")
			}
			_ = f.Write(ctx, p, "mine")
			if all, err := f.List(ctx, "/sub"); err == nil && slices.ContainsFunc(all, func(e File) bool { return e.Size == len(outsideSecret) }) {
				t.Error("listed what is outside")
			}
			_ = f.Remove(ctx, p)
		}
	}
	close(stop)
	swaps.Wait()
	intact(t)
}

func TestDiskFilesAreReplacedAsAWhole(t *testing.T) {
	root := t.TempDir()
	f := Disk(root)
	a, b := strings.Repeat("a", 200_000), strings.Repeat("b", 200_000)
	if err := f.Write(t.Context(), "/x/f.txt", a); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(filepath.Join(root, "x", "f.txt"), 0o600); err != nil {
		t.Fatal(err)
	}
	var writer sync.WaitGroup
	writer.Go(func() {
		for i := range 40 {
			if err := f.Write(context.Background(), "/x/f.txt", []string{a, b}[i%2]); err != nil {
				t.Error(err)
			}
		}
	})
	for range 200 {
		if got, err := f.Read(t.Context(), "/x/f.txt"); err != nil || got.Text != a && got.Text != b {
			t.Errorf("read %d bytes, %v, which are neither text", len(got.Text), err)
		}
	}
	writer.Wait()
	info, err := os.Stat(filepath.Join(root, "x", "f.txt"))
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the file's mode is %v, %v; want it kept", info.Mode(), err)
	}
	entries, err := os.ReadDir(filepath.Join(root, "x"))
	if err != nil || len(entries) != 1 {
		t.Errorf("%d files are left, %v; want one", len(entries), err)
	}
}

// TestAHardLinkIsNotWrittenThrough: writing gives the path a new file, so that
// another name of the old one, which may be outside, keeps its text.
func TestAHardLinkIsNotWrittenThrough(t *testing.T) {
	root, intact := diskWorld(t)
	if err := os.Link(filepath.Join(filepath.Dir(root), "secret.txt"), filepath.Join(root, "hard")); err != nil {
		t.Skip("no hard links here:", err)
	}
	if err := Disk(root).Write(t.Context(), "/hard", "new"); err != nil {
		t.Error(err)
	}
	intact(t)
}

func TestFilesAreText(t *testing.T) {
	root := t.TempDir()
	for name, text := range map[string]string{"binary": "\xff\x00\xfe", "large": strings.Repeat("a", MaxSize+1)} {
		if err := os.WriteFile(filepath.Join(root, name), []byte(text), 0o666); err != nil {
			t.Fatal(err)
		}
	}
	for _, f := range []FS{Disk(root), Shared(&testShelf{}), State(), Composite(nil, Disk(root))} {
		for _, text := range []string{"\xff", "a\xc3", strings.Repeat("a", MaxSize+1)} {
			if err := f.Write(t.Context(), "/a", text); !errors.Is(err, ErrNotText) {
				t.Errorf("%T: writing %.10q: %v, want ErrNotText", f, text, err)
			}
		}
	}
	for _, p := range []string{"/binary", "/large"} {
		if _, err := Disk(root).Read(t.Context(), p); !errors.Is(err, ErrNotText) {
			t.Errorf("reading %s: %v, want ErrNotText", p, err)
		}
	}
}

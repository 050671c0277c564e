package backup

import (
	"archive/tar"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/store"
)

// Send takes a backup of a store and writes it to w as a tar stream, the manifest
// last. In between it is in a temporary folder. Begin is called before the first
// byte, when nothing more can go wrong with the store.
func Send(ctx context.Context, s store.Store, w io.Writer, begin func(*Manifest)) error {
	temp, err := os.MkdirTemp("", "perdure-backup-")
	if err != nil {
		return fmt.Errorf("backup: %w", err)
	}
	defer os.RemoveAll(temp)
	dir := filepath.Join(temp, "backup")
	m, err := Take(ctx, s, dir)
	if err != nil {
		return err
	}
	begin(m)
	out := tar.NewWriter(w)
	for _, name := range emptyFolders(dir) {
		if name != "." {
			if err := out.WriteHeader(&tar.Header{Typeflag: tar.TypeDir, Name: filepath.ToSlash(name) + "/", Mode: 0o700, Format: tar.FormatPAX}); err != nil {
				return err
			}
		}
	}
	add := func(name, path string, info fs.FileInfo) error {
		if err := ctx.Err(); err != nil {
			return err
		}
		f, err := os.Open(path)
		if err != nil {
			return err
		}
		defer f.Close()
		if err := out.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: name, Size: info.Size(), Mode: 0o600, ModTime: m.Taken, Format: tar.FormatPAX}); err != nil {
			return err
		}
		_, err = io.Copy(out, f)
		return err
	}
	if err := each(dir, add); err != nil {
		return err
	}
	last := filepath.Join(dir, manifestName)
	info, err := os.Stat(last)
	if err == nil {
		err = add(manifestName, last, info)
	}
	if err != nil {
		return err
	}
	return out.Close()
}

// Receive reads what Send wrote into the new folder dir, and compares it with the
// manifest. A stream that was cut off leaves nothing there.
func Receive(ctx context.Context, r io.Reader, dir string) (m *Manifest, err error) {
	err = create(dir, func(partial string) error {
		if m, err = unpack(ctx, tar.NewReader(r), partial); err != nil {
			return err
		}
		found := new(Manifest)
		if err := found.measure(ctx, partial); err != nil {
			return err
		}
		if err := m.matches(found); err != nil {
			return err
		}
		if err := syncFolders(partial); err != nil {
			return err
		}
		return m.save(partial)
	})
	if err != nil {
		return nil, fmt.Errorf("backup: %w", err)
	}
	return m, nil
}

// maxManifest is the size of the largest manifest.
const maxManifest = 64 << 10

// unpack writes the files of a stream into a folder, and returns the manifest at its
// end.
func unpack(ctx context.Context, in *tar.Reader, dir string) (*Manifest, error) {
	for {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		h, err := in.Next()
		if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
			return nil, fmt.Errorf("%w: the server's answer ends before the backup does", io.ErrUnexpectedEOF)
		}
		if err != nil {
			return nil, err
		}
		if h.Name == manifestName {
			data, err := io.ReadAll(io.LimitReader(in, maxManifest))
			if err != nil {
				return nil, err
			}
			return parse(data)
		}
		name := filepath.FromSlash(strings.TrimSuffix(h.Name, "/"))
		if !filepath.IsLocal(name) {
			return nil, fmt.Errorf("%w: the server sends a file called %q", fault.ErrInvalid, h.Name)
		}
		path := filepath.Join(dir, name)
		if h.Typeflag == tar.TypeDir {
			err = os.Mkdir(path, 0o700)
		} else {
			err = writeFile(path, in)
		}
		if err != nil {
			return nil, err
		}
	}
}

func writeFile(path string, in io.Reader) error {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	_, err = io.Copy(f, in)
	return errors.Join(err, f.Sync(), f.Close())
}

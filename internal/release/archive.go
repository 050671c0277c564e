package main

import (
	"archive/tar"
	"archive/zip"
	"compress/gzip"
	"errors"
	"io"
	"os"
	"path"
	"path/filepath"
	"strings"
	"time"
)

// member is a file or folder in an archive.
type member struct {
	name string // a folder ends with a slash
	mode int64
	user int
	data []byte
}

// archive packs the programs for a system: zip for Windows, tar.gz for all others.
func (r *release) archive(s system, programs []string) error {
	suffix := ".tar.gz"
	write := writeTarGz
	if s.os == "windows" {
		suffix, write = ".zip", writeZip
	}
	file := r.name(s, suffix)
	folder := strings.TrimSuffix(filepath.Base(file), suffix)
	var members []member
	add := func(from, name string, mode int64) error {
		data, err := os.ReadFile(from)
		members = append(members, member{name: path.Join(folder, name), mode: mode, data: data})
		return err
	}
	var err error
	for _, p := range programs {
		err = errors.Join(err, add(r.built(s, p), s.file(p), 0o755))
	}
	for _, name := range []string{"LICENSE", "README.md", "CHANGELOG.md"} {
		err = errors.Join(err, add(filepath.Join(r.root, name), name, 0o644))
	}
	if err != nil {
		return err
	}
	f, err := os.Create(file)
	if err != nil {
		return err
	}
	return errors.Join(write(f, members, r.at), f.Close())
}

func writeTarGz(to io.Writer, members []member, at time.Time) error {
	z, err := gzip.NewWriterLevel(to, gzip.BestCompression)
	if err != nil {
		return err
	}
	return errors.Join(writeTar(z, members, at), z.Close())
}

// writeTar writes members with one time and without the names of users.
func writeTar(to io.Writer, members []member, at time.Time) error {
	w := tar.NewWriter(to)
	for _, m := range members {
		h := &tar.Header{Typeflag: tar.TypeReg, Name: m.name, Mode: m.mode, Size: int64(len(m.data)), Uid: m.user, Gid: m.user, ModTime: at, Format: tar.FormatPAX}
		if strings.HasSuffix(m.name, "/") {
			h.Typeflag = tar.TypeDir
		}
		if err := w.WriteHeader(h); err != nil {
			return err
		}
		if _, err := w.Write(m.data); err != nil {
			return err
		}
	}
	return w.Close()
}

func writeZip(to io.Writer, members []member, at time.Time) error {
	w := zip.NewWriter(to)
	for _, m := range members {
		f, err := w.CreateHeader(&zip.FileHeader{Name: m.name, Method: zip.Deflate, Modified: at})
		if err != nil {
			return err
		}
		if _, err := f.Write(m.data); err != nil {
			return err
		}
	}
	return w.Close()
}

// Release builds what is released, into a folder:
//
//   - an archive for each system, with static programs;
//   - a bill of materials (CycloneDX) for each of them, from the modules in the program;
//   - Debian packages with units for systemd;
//   - an OCI image layout for both architectures of Linux, made without a daemon;
//   - SHA256SUMS of all files.
//
// The version is the one that Go stamps into the programs: the tag of the commit, or a
// pseudo-version. The files have no times but that of the commit, so the same commit, Go,
// dpkg-deb and certificates of authorities give the same sums on every machine. It imports
// only the standard library.
package main

import (
	"context"
	"crypto/sha256"
	"debug/buildinfo"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"log"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// release is one release while it is built.
type release struct {
	root    string // of the repository
	out     string
	work    string // for programs before they are packed
	version string // such as v0.1.0
	commit  string
	at      time.Time // of the commit
}

// system is what programs are built for, such as linux/amd64.
type system struct{ os, arch string }

func (s system) String() string { return s.os + "/" + s.arch }

// file returns the name of a program there.
func (s system) file(program string) string {
	if s.os == "windows" {
		return program + ".exe"
	}
	return program
}

func main() {
	log.SetFlags(0)
	root := flag.String("root", ".", "the repository")
	out := flag.String("out", "dist", "folder for the files; what is in it is removed")
	authorities := flag.String("authorities", "/etc/ssl/certs/ca-certificates.crt", "file with the certificates of public authorities, for the image")
	systems := flag.String("systems", "linux/amd64,linux/arm64,darwin/arm64,darwin/amd64,windows/amd64", "what to build for")
	programs := flag.String("programs", "perdure,perdure-cluster", "what to build; the first one is in the image")
	dirty := flag.Bool("dirty", false, "allow changes that are not committed")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, *root, *out, *authorities, strings.Split(*systems, ","), strings.Split(*programs, ","), *dirty); err != nil {
		log.Fatalf("release: %v", err)
	}
}

func run(ctx context.Context, root, out, authorities string, systems, programs []string, dirty bool) error {
	r := &release{}
	var err error
	if r.root, err = filepath.Abs(root); err != nil {
		return err
	}
	if r.out, err = filepath.Abs(out); err != nil {
		return err
	}
	if err := os.RemoveAll(r.out); err != nil {
		return err
	}
	if err := os.MkdirAll(r.out, 0o755); err != nil {
		return err
	}
	if r.work, err = os.MkdirTemp("", "perdure-release-"); err != nil {
		return err
	}
	defer os.RemoveAll(r.work)
	head, err := r.command(ctx, r.root, nil, "git", "log", "-1", "--format=%H %ct")
	if err != nil {
		return err
	}
	var seconds string
	r.commit, seconds, _ = strings.Cut(strings.TrimSpace(head), " ")
	n, err := strconv.ParseInt(seconds, 10, 64)
	if err != nil {
		return err
	}
	r.at = time.Unix(n, 0).UTC()

	var images []system
	for _, name := range systems {
		var s system
		s.os, s.arch, _ = strings.Cut(name, "/")
		begin := time.Now()
		if err := r.build(ctx, s, programs, dirty); err != nil {
			return err
		}
		if err := r.archive(s, programs); err != nil {
			return err
		}
		if err := r.materials(s, programs); err != nil {
			return err
		}
		if s.os == "linux" {
			images = append(images, s)
			if err := r.debian(ctx, s, programs); err != nil {
				return err
			}
		}
		fmt.Printf("%s %s: %s\n", r.version, s, time.Since(begin).Round(time.Second))
	}
	if len(images) > 0 {
		if err := r.image(images, programs, authorities); err != nil {
			return err
		}
	}
	return r.sums()
}

// command runs a program and returns what it writes.
func (r *release) command(ctx context.Context, dir string, env []string, name string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), env...)
	var complaints strings.Builder
	cmd.Stderr = &complaints
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("%s %s: %w\n%s", name, strings.Join(args, " "), err, complaints.String())
	}
	return string(out), nil
}

// built returns where a program is before it is packed.
func (r *release) built(s system, program string) string {
	return filepath.Join(r.work, s.os, s.arch, s.file(program))
}

// build builds programs for a system, and checks that they are what they should be.
func (r *release) build(ctx context.Context, s system, programs []string, dirty bool) error {
	env := []string{"GOOS=" + s.os, "GOARCH=" + s.arch, "CGO_ENABLED=0", "GOFLAGS=", "GOAMD64=v1", "GOARM64=v8.0", "GOEXPERIMENT="}
	args := []string{"build", "-trimpath", "-buildvcs=true", "-ldflags=-s -w", "-o", filepath.Dir(r.built(s, programs[0])) + string(filepath.Separator)}
	for _, p := range programs {
		args = append(args, "./cmd/"+p)
	}
	if err := os.MkdirAll(filepath.Dir(r.built(s, programs[0])), 0o755); err != nil {
		return err
	}
	if _, err := r.command(ctx, r.root, env, "go", args...); err != nil {
		return err
	}
	for _, p := range programs {
		info, err := buildinfo.ReadFile(r.built(s, p))
		if err != nil {
			return err
		}
		if strings.HasSuffix(info.Main.Version, "+dirty") && !dirty {
			return errors.New("there are changes that are not committed")
		}
		if r.version == "" {
			r.version = info.Main.Version
		}
		if info.Main.Version != r.version || !strings.HasPrefix(r.version, "v") {
			return fmt.Errorf("%s for %s has the version %q, want %q", p, s, info.Main.Version, r.version)
		}
		got := map[string]string{}
		for _, setting := range info.Settings {
			got[setting.Key] = setting.Value
		}
		if got["CGO_ENABLED"] != "0" || got["-trimpath"] != "true" || got["vcs.revision"] != r.commit {
			return fmt.Errorf("%s for %s is built with %v", p, s, got)
		}
	}
	return nil
}

// name returns the name of a released file.
func (r *release) name(s system, suffix string) string {
	return filepath.Join(r.out, fmt.Sprintf("perdure_%s_%s_%s%s", strings.TrimPrefix(r.version, "v"), s.os, s.arch, suffix))
}

// sums writes SHA256SUMS, which sha256sum -c reads.
func (r *release) sums() error {
	var text strings.Builder
	err := filepath.WalkDir(r.out, func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		data, err := os.ReadFile(name)
		if err != nil {
			return err
		}
		short, err := filepath.Rel(r.out, name)
		fmt.Fprintf(&text, "%x  %s\n", sha256.Sum256(data), filepath.ToSlash(short))
		return err
	})
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(r.out, "SHA256SUMS"), []byte(text.String()), 0o644)
}

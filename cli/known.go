package cli

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/host"
	"github.com/perdure/perdure/internal/peer"
)

// stateFolder is where this user's commands remember what belongs to them.
func (a *app) stateFolder() (string, error) {
	if dir := a.term.Env("XDG_STATE_HOME"); filepath.IsAbs(dir) {
		return filepath.Join(dir, "perdure"), nil
	}
	if dir := a.term.Env("LocalAppData"); runtime.GOOS == "windows" && filepath.IsAbs(dir) {
		return filepath.Join(dir, "perdure"), nil
	}
	if dir := a.term.Env("HOME"); filepath.IsAbs(dir) {
		return filepath.Join(dir, ".local", "state", "perdure"), nil
	}
	return "", errors.New("there is no home folder to remember it in; set XDG_STATE_HOME")
}

// remember writes a file of the state folder, for this user only, all or nothing.
func (a *app) remember(kind, name string, data []byte) error {
	dir, err := a.stateFolder()
	if err != nil {
		return err
	}
	dir = filepath.Join(dir, kind)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	f, err := os.CreateTemp(dir, ".new-*") // mode 0600
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	if err = errors.Join(err, f.Close()); err == nil {
		err = os.Rename(f.Name(), filepath.Join(dir, name))
	}
	if err != nil {
		os.Remove(f.Name())
	}
	return err
}

// familiar returns an error unless the store in ./.perdure was made by this user
// on this machine, or is trusted: a folder that came from elsewhere can hold runs
// whose calls are approved already. A store is known by its id, its path and its
// file, since whoever copies a store copies its id.
func (a *app) familiar(ctx context.Context, rt *perdure.Runtime, made bool) error {
	where, err := filepath.Abs(filepath.Join(devFolder, devFile))
	if err != nil {
		return err
	}
	if real, err := filepath.EvalSymlinks(where); err == nil {
		where = real
	}
	where += "\n" + fileID(where) + "\n"
	sum := sha256.Sum256(append(host.FromRuntime(rt).Hash("store"), where...))
	id := hex.EncodeToString(sum[:16])
	dir, err := a.stateFolder()
	if err == nil {
		if _, err := os.Stat(filepath.Join(dir, "stores", id)); err == nil {
			return nil
		}
	}
	if !made && !a.trust {
		if !a.term.Interactive() {
			return usage(fmt.Errorf("./%s was not made here by you, or it was moved or copied, and what it holds could run here; look where it comes from, then say --trust, or name it with --store", devFolder))
		}
		a.term.Printf("./%s was not made here by you, or it was moved or copied. Runs in it can go on here, with calls that somebody approved elsewhere.\n", devFolder)
		answer, err := a.term.Ask(ctx, "Use it? (yes/no) ")
		if err != nil && !errors.Is(err, io.EOF) {
			return err
		}
		if answer != "yes" && answer != "y" {
			return usage(fmt.Errorf("./%s is not used", devFolder))
		}
	}
	if err := a.remember("stores", id, []byte(where)); err != nil {
		a.hint("the store in ./%s will be asked about again: %v", devFolder, err)
	}
	return nil
}

// devRecord is what dev tells this user's other commands.
type devRecord struct {
	Address string `json:"address"` // it listens on
	Program string `json:"program"`
	Store   string `json:"store"` // URL
	File    string `json:"file,omitempty"`
	Secret  string `json:"secret"` // for those who cannot be told by their user id
	PID     int    `json:"pid"`
}

// serves reports whether the store of dev is a file.
func (d devRecord) serves(file string) bool {
	one, err := os.Stat(file)
	if err != nil || d.File == "" {
		return false
	}
	other, err := os.Stat(d.File)
	return err == nil && os.SameFile(one, other)
}

// own reports whether the one who listens there is this user, as far as the
// system can tell.
func (d devRecord) own() bool {
	at, err := netip.ParseAddrPort(d.Address)
	if err != nil || !at.Addr().IsLoopback() || !alive(d.PID) {
		return false
	}
	uid, known := peer.Owner(at, netip.AddrPort{})
	return !known || uid == os.Geteuid()
}

// recordDev tells this user's other commands about a dev server, until forget is
// called.
func (a *app) recordDev(at net.Addr, url string) (d devRecord, forget func(), err error) {
	d = devRecord{Address: at.String(), Program: a.program(), Store: url, Secret: rand.Text(), PID: os.Getpid()}
	if file, ok := sqliteFile(url); ok {
		if d.File, err = filepath.Abs(file); err != nil {
			return d, nil, err
		}
	}
	data, err := json.Marshal(d)
	if err != nil {
		return d, nil, err
	}
	name := strings.Map(func(c rune) rune {
		if c == ':' || c == '[' || c == ']' || c == '%' {
			return '-'
		}
		return c
	}, d.Address) + ".json"
	if err := a.remember("dev", name, data); err != nil {
		return d, nil, err
	}
	return d, func() {
		dir, err := a.stateFolder()
		if err != nil {
			return
		}
		name = filepath.Join(dir, "dev", name)
		if now, err := os.ReadFile(name); err == nil && string(now) == string(data) {
			os.Remove(name)
		}
	}, nil
}

// devRecords returns what this user's dev servers have told.
func (a *app) devRecords() []devRecord {
	dir, err := a.stateFolder()
	if err != nil {
		return nil
	}
	files, _ := filepath.Glob(filepath.Join(dir, "dev", "*.json"))
	var all []devRecord
	for _, name := range files {
		var d devRecord
		if data, err := os.ReadFile(name); err == nil && json.Unmarshal(data, &d) == nil {
			all = append(all, d)
		}
	}
	return all
}

// dialDev returns the first of this user's dev servers that fits and answers, nil
// if none does.
func (a *app) dialDev(ctx context.Context, fits func(devRecord) bool) *link {
	for _, d := range a.devRecords() {
		if !fits(d) || !d.own() {
			continue
		}
		soon, cancel := context.WithTimeout(ctx, time.Second)
		l, err := a.dial("http://"+d.Address, d.Secret)
		there := err == nil && l.answers(soon)
		if cancel(); there {
			return l
		}
	}
	return nil
}

// devSecret returns the secret of this user's dev server at an address, "" if
// there is none.
func (a *app) devSecret(address string) string {
	address = strings.TrimSuffix(strings.TrimPrefix(address, "http://"), "/")
	for _, d := range a.devRecords() {
		if d.Address == address && d.own() {
			return d.Secret
		}
	}
	return ""
}

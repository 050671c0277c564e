package link

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/cli/internal/exit"
	"github.com/perdure/perdure/internal/peer"
	"github.com/perdure/perdure/internal/threads"
	"github.com/perdure/perdure/store"
)

// stateFolder is where this user's commands keep what they remember.
func (c *Connector) stateFolder() (string, error) {
	if dir := c.Term.Env("XDG_STATE_HOME"); filepath.IsAbs(dir) {
		return filepath.Join(dir, "perdure"), nil
	}
	if dir := c.Term.Env("LocalAppData"); runtime.GOOS == "windows" && filepath.IsAbs(dir) {
		return filepath.Join(dir, "perdure"), nil
	}
	if dir := c.Term.Env("HOME"); filepath.IsAbs(dir) {
		return filepath.Join(dir, ".local", "state", "perdure"), nil
	}
	return "", errors.New("there is no home folder to remember it in; set XDG_STATE_HOME")
}

// remember writes a file in the state folder, readable by this user only, whole or
// not at all.
func (c *Connector) remember(kind, name string, data []byte) error {
	dir, err := c.stateFolder()
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

// checkKnown returns an error unless the store in ./.perdure was made by this user on
// this machine, or is trusted: a folder from elsewhere can hold runs whose calls are
// already approved. A store is known by its id, its path and its file, since a copy
// has the same id.
func (c *Connector) checkKnown(ctx context.Context, rt *perdure.Runtime, made bool) error {
	where, err := filepath.Abs(DevFile)
	if err != nil {
		return err
	}
	if real, err := filepath.EvalSymlinks(where); err == nil {
		where = real
	}
	where += "\n" + fileID(where) + "\n"
	sum := sha256.Sum256(append(threads.Behind(rt).All.Hash("store"), where...))
	id := hex.EncodeToString(sum[:16])
	dir, err := c.stateFolder()
	if err == nil {
		if _, err := os.Stat(filepath.Join(dir, "stores", id)); err == nil {
			return nil
		}
	}
	if !made && !c.Trust {
		if !c.Term.Interactive() {
			return exit.Usage(fmt.Errorf("./%s was not created here by you, or it was moved or copied, and its runs could continue here; check where it comes from, then use --trust, or name it with --store", DevFolder))
		}
		c.Term.Printf("./%s was not created here by you, or it was moved or copied. Its runs can continue here, with calls that somebody approved elsewhere.\n", DevFolder)
		answer, err := c.Term.Ask(ctx, "Use it? (yes/no) ")
		if err != nil && !errors.Is(err, io.EOF) {
			return err
		}
		if answer != "yes" && answer != "y" {
			return exit.Usage(fmt.Errorf("./%s is not used", DevFolder))
		}
	}
	if err := c.remember("stores", id, []byte(where)); err != nil {
		c.Hint("you will be asked about the store in ./%s again: %v", DevFolder, err)
	}
	return nil
}

// DevStore creates the folder of dev, and keeps it out of version control. Anyone
// who may write to its parent could replace it.
func (c *Connector) DevStore() (string, error) {
	if _, err := os.Stat(DevFile); errors.Is(err, fs.ErrNotExist) && !c.Shared {
		here, err := os.Getwd()
		if err == nil {
			err = store.CheckFolder(here)
		}
		if err != nil {
			return "", &exit.Error{Code: exit.Unavailable, Err: fmt.Errorf("creating a store in ./%s: %w", DevFolder, err)}
		}
	}
	if err := os.MkdirAll(DevFolder, 0o700); err != nil {
		return "", fmt.Errorf("%w; everything is kept in ./%s: call it in a folder that you can write to, or name a --store", err, DevFolder)
	}
	ignore := filepath.Join(DevFolder, ".gitignore")
	if _, err := os.Stat(ignore); err != nil {
		if err := os.WriteFile(ignore, []byte("*\n"), 0o600); err != nil {
			return "", err
		}
	}
	return DevURL, nil
}

// DevRecord is what dev tells this user's other commands.
type DevRecord struct {
	Address string `json:"address"` // it listens on
	Program string `json:"program"`
	Store   string `json:"store"` // its name
	File    string `json:"file,omitempty"`
	Secret  string `json:"secret"` // for those who cannot be told by their user id
	PID     int    `json:"pid"`
}

// Serves reports whether the store of dev is in a file.
func (d DevRecord) Serves(file string) bool {
	one, err := os.Stat(file)
	if err != nil || d.File == "" {
		return false
	}
	other, err := os.Stat(d.File)
	return err == nil && os.SameFile(one, other)
}

// own reports whether the one who listens there is this user, as far as the
// system can tell.
func (d DevRecord) own() bool {
	at, err := netip.ParseAddrPort(d.Address)
	if err != nil || !at.Addr().IsLoopback() || !alive(d.PID) {
		return false
	}
	uid, known := peer.Owner(at, netip.AddrPort{})
	return !known || uid == os.Geteuid()
}

// RecordDev tells this user's other commands about a dev server, until forget is
// called.
func (c *Connector) RecordDev(at net.Addr, url string) (d DevRecord, forget func(), err error) {
	d = DevRecord{Address: at.String(), Program: c.Program, Store: StoreName(url), Secret: rand.Text(), PID: os.Getpid()}
	if file, ok := SQLiteFile(url); ok {
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
	if err := c.remember("dev", name, data); err != nil {
		return d, nil, err
	}
	return d, func() {
		dir, err := c.stateFolder()
		if err != nil {
			return
		}
		name = filepath.Join(dir, "dev", name)
		if now, err := os.ReadFile(name); err == nil && string(now) == string(data) {
			os.Remove(name)
		}
	}, nil
}

// devRecords returns the records of this user's dev servers.
func (c *Connector) devRecords() []DevRecord {
	dir, err := c.stateFolder()
	if err != nil {
		return nil
	}
	files, _ := filepath.Glob(filepath.Join(dir, "dev", "*.json"))
	var all []DevRecord
	for _, name := range files {
		var d DevRecord
		if data, err := os.ReadFile(name); err == nil && json.Unmarshal(data, &d) == nil {
			all = append(all, d)
		}
	}
	return all
}

// DialDev returns the first of this user's dev servers that fits and answers, nil
// if none does.
func (c *Connector) DialDev(ctx context.Context, fits func(DevRecord) bool) *Link {
	for _, d := range c.devRecords() {
		if !fits(d) || !d.own() {
			continue
		}
		soon, cancel := context.WithTimeout(ctx, time.Second)
		l, err := c.Dial("http://"+d.Address, d.Secret)
		there := err == nil && l.Answers(soon)
		if cancel(); there {
			return l
		}
	}
	return nil
}

// devSecret returns the secret of this user's dev server at an address, "" if
// there is none.
func (c *Connector) devSecret(address string) string {
	address = strings.TrimSuffix(strings.TrimPrefix(address, "http://"), "/")
	for _, d := range c.devRecords() {
		if d.Address == address && d.own() {
			return d.Secret
		}
	}
	return ""
}

package link

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/cli/internal/exit"
	"github.com/perdure/perdure/store"
	_ "github.com/perdure/perdure/store/filestore"   // file: URLs
	_ "github.com/perdure/perdure/store/memstore"    // memory: URLs
	_ "github.com/perdure/perdure/store/sqlitestore" // sqlite: URLs
)

// StoreHere returns the URL of the store that the flags name, or of the one that dev
// made in this folder.
func (c *Connector) StoreHere() (string, error) {
	if c.Store != "" {
		return c.Store, nil
	}
	if _, err := os.Stat(DevFile); err != nil {
		return "", exit.Usage(fmt.Errorf("name a store with --store, such as --store sqlite:perdure.db; there is none in ./%s", DevFolder))
	}
	return DevURL, nil
}

// OpenRuntime opens a store with the program's flows, and again whenever it fails. A
// store that nobody named is used only if it is known.
func (c *Connector) OpenRuntime(ctx context.Context, url string, o perdure.Options) (*perdure.Runtime, func(), error) {
	made := false
	if c.Store == "" {
		_, err := os.Stat(DevFile)
		made = errors.Is(err, fs.ErrNotExist)
	}
	s, err := store.Reopen(ctx, func(ctx context.Context) (store.Store, error) { return c.OpenURL(ctx, url) })
	if err != nil {
		return nil, nil, &exit.Error{Code: exit.Unavailable, Err: fmt.Errorf("opening the store %s: %w", url, err)}
	}
	rt, err := perdure.New(ctx, s, c.runtimeOptions(o), c.Flows...)
	if err == nil && c.Store == "" {
		err = c.checkKnown(ctx, rt, made)
	}
	if err != nil {
		s.Close()
		return nil, nil, err
	}
	return rt, func() { s.Close() }, nil
}

// OpenURL opens a store; the flags say whether its folder may be shared.
func (c *Connector) OpenURL(ctx context.Context, url string) (store.Store, error) {
	if c.Shared && (strings.HasPrefix(url, "sqlite:") || strings.HasPrefix(url, "file:")) {
		url = strings.TrimSuffix(url, store.SharedFolder) + store.SharedFolder
	}
	return store.Open(ctx, url)
}

// runtimeOptions returns the program's options with those of a command on top. Both
// observers are called.
func (c *Connector) runtimeOptions(o perdure.Options) perdure.Options {
	all := c.Runtime
	if o.Logger != nil {
		all.Logger = o.Logger
	}
	switch {
	case all.Observer == nil:
		all.Observer = o.Observer
	case o.Observer != nil:
		all.Observer = observers{all.Observer, o.Observer}
	}
	if o.Concurrency != 0 {
		all.Concurrency = o.Concurrency
	}
	if o.Lease != 0 {
		all.Lease = o.Lease
	}
	return all
}

// observers are two observers; the context of a step passes through both.
type observers [2]perdure.Observer

// StepStarted tells both.
func (o observers) StepStarted(ctx context.Context, s perdure.StepInfo) (context.Context, func(error)) {
	ctx, first := o[0].StepStarted(ctx, s)
	ctx, second := o[1].StepStarted(ctx, s)
	return ctx, func(err error) {
		second(err)
		first(err)
	}
}

// Committed tells both.
func (o observers) Committed(e perdure.Event) {
	o[0].Committed(e)
	o[1].Committed(e)
}

// SQLiteFile returns the file of a SQLite URL.
func SQLiteFile(url string) (string, bool) {
	path, ok := strings.CutPrefix(strings.TrimSuffix(url, store.SharedFolder), "sqlite:")
	if rest, absolute := strings.CutPrefix(path, "///"); absolute {
		path = "/" + rest
	}
	return path, ok
}

// Folder returns the folder of a store on disk, "" of any other.
func Folder(url string) string {
	if file, ok := SQLiteFile(url); ok {
		return filepath.Dir(file)
	}
	folder, ok := strings.CutPrefix(strings.TrimSuffix(url, store.SharedFolder), "file:")
	if !ok {
		return ""
	}
	return folder
}

package link

import (
	"context"
	"errors"
	"io"
	"iter"
	"log/slog"
	"strings"
	"sync"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/archive"
	"github.com/perdure/perdure/internal/threads"
	"github.com/perdure/perdure/internal/vault"
)

// openArchive opens the archive at a URL. A service that cannot be reached is no reason not to
// start: what needs the archive fails until it is back. A folder has to be there.
func openArchive(ctx context.Context, url string, log *slog.Logger) (archive.Place, error) {
	p, err := archive.Open(ctx, url)
	if !errors.Is(err, archive.ErrUnavailable) || strings.HasPrefix(url, "file:") || ctx.Err() != nil {
		return p, err
	}
	if log != nil {
		log.Error("the archive cannot be reached; what needs it fails until it can", "error", err)
	}
	return &latePlace{url: url}, nil
}

// CheckArchive returns an error if the archive is not the one that the store has used.
func (c *Connector) CheckArchive(ctx context.Context, rt *perdure.Runtime) error {
	_, err := vault.New(threads.Behind(rt), nil, c.place).Known(ctx)
	return err
}

// latePlace is a place that could not be opened yet. Each call tries to.
type latePlace struct {
	url string

	mu   sync.Mutex
	open archive.Place
}

var (
	_ archive.Place      = (*latePlace)(nil)
	_ archive.Freezer    = (*latePlace)(nil)
	_ archive.Identified = (*latePlace)(nil)
	_ vault.Late         = (*latePlace)(nil)
)

// opened returns the place if it is open.
func (l *latePlace) opened() archive.Place {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.open
}

// Place opens the place if it is not open. Calls do not wait for each other.
func (l *latePlace) Place(ctx context.Context) (archive.Place, error) {
	if p := l.opened(); p != nil {
		return p, nil
	}
	p, err := archive.Open(ctx, l.url)
	if errors.Is(err, archive.ErrInvalid) { // it answers now, and refuses: the caller cannot help it
		err = errors.Join(archive.ErrUnavailable, err)
	}
	if err != nil {
		return nil, err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.open == nil {
		l.open = p
	}
	return l.open, nil
}

func (l *latePlace) Put(ctx context.Context, name string, r io.Reader) error {
	p, err := l.Place(ctx)
	if err != nil {
		return err
	}
	return p.Put(ctx, name, r)
}

func (l *latePlace) Get(ctx context.Context, name string) (io.ReadCloser, error) {
	p, err := l.Place(ctx)
	if err != nil {
		return nil, err
	}
	return p.Get(ctx, name)
}

func (l *latePlace) List(ctx context.Context, prefix, after string) iter.Seq2[string, error] {
	return func(yield func(string, error) bool) {
		p, err := l.Place(ctx)
		if err != nil {
			yield("", err)
			return
		}
		p.List(ctx, prefix, after)(yield)
	}
}

func (l *latePlace) Delete(ctx context.Context, name string) error {
	p, err := l.Place(ctx)
	if err != nil {
		return err
	}
	return p.Delete(ctx, name)
}

func (l *latePlace) Freeze(ctx context.Context, name string) error {
	p, err := l.Place(ctx)
	if err != nil {
		return err
	}
	if f, ok := p.(archive.Freezer); ok {
		return f.Freeze(ctx, name)
	}
	return nil
}

// ID returns the id of the place, "" as long as it is not known.
func (l *latePlace) ID() string {
	if i, ok := l.opened().(archive.Identified); ok {
		return i.ID()
	}
	return ""
}

// Begin gives the place an id, if it can be opened.
func (l *latePlace) Begin(ctx context.Context) error {
	p, err := l.Place(ctx)
	if i, ok := p.(archive.Identified); ok {
		return i.Begin(ctx)
	}
	return err
}

// URL returns the URL without its parameters, which may be secret.
func (l *latePlace) URL() string {
	if p := l.opened(); p != nil {
		return p.URL()
	}
	url, _, _ := strings.Cut(l.url, "?")
	return strings.TrimSuffix(url, "/")
}

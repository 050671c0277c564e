package vault_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/archive"
	"github.com/perdure/perdure/archive/archivetest"
	"github.com/perdure/perdure/internal/kit"
	"github.com/perdure/perdure/store"
	"github.com/perdure/perdure/store/faulty"
)

// place is a place in memory. Fail, if not nil, sees each call first.
type place struct {
	mu      sync.Mutex
	url     string
	objects map[string][]byte
	fail    func(op string) error
}

func newPlace() *place { return &place{url: "memory:", objects: map[string][]byte{}} }

func (p *place) URL() string { return p.url }

func (p *place) call(ctx context.Context, op string) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if p.fail != nil {
		return p.fail(op)
	}
	return nil
}

func (p *place) Put(ctx context.Context, name string, r io.Reader) error {
	if err := errors.Join(archive.CheckName(name), p.call(ctx, "put")); err != nil {
		return err
	}
	data, err := io.ReadAll(r)
	if err == nil {
		err = p.call(ctx, "putting")
	}
	if err != nil {
		return err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.objects[name] = data
	return nil
}

func (p *place) Get(ctx context.Context, name string) (io.ReadCloser, error) {
	if err := errors.Join(archive.CheckName(name), p.call(ctx, "get")); err != nil {
		return nil, err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	data, ok := p.objects[name]
	if !ok {
		return nil, archive.ErrNotFound
	}
	return io.NopCloser(io.MultiReader(bytes.NewReader(data), end(func() error { return p.call(ctx, "getting") }))), nil
}

// end is the end of a reader, which may be an error.
type end func() error

func (e end) Read([]byte) (int, error) { return 0, orElse(e(), io.EOF) }

func orElse(err, otherwise error) error {
	if err != nil {
		return err
	}
	return otherwise
}

func (p *place) List(ctx context.Context, prefix, after string) iter.Seq2[string, error] {
	return func(yield func(string, error) bool) {
		if err := p.call(ctx, "list"); err != nil {
			yield("", err)
			return
		}
		for _, name := range p.names() {
			if strings.HasPrefix(name, prefix) && name > after && !yield(name, nil) {
				return
			}
		}
	}
}

func (p *place) names() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Sorted(maps.Keys(p.objects))
}

func (p *place) Delete(ctx context.Context, name string) error {
	if err := errors.Join(archive.CheckName(name), p.call(ctx, "delete")); err != nil {
		return err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.objects, name)
	return nil
}

func TestPlaceInMemory(t *testing.T) {
	var all sync.Map
	archivetest.Run(t, func(tb testing.TB) archive.Place {
		p, _ := all.LoadOrStore(tb, newPlace())
		return p.(*place)
	})
}

// effects counts, by key, how often the steps of flows ran.
var effects kit.Tally

// broken makes the flow "shaky" fail while it is set.
var broken sync.Map

func effect(ctx context.Context, name string) (string, error) {
	return perdure.Step(ctx, name, func(ctx context.Context) (string, error) {
		effects.Hit(perdure.Key(ctx))
		return perdure.Key(ctx), nil
	})
}

// flows are those of the threads that are archived.
func flows() []perdure.Flow {
	return []perdure.Flow{
		kit.Ledger, kit.EchoFlow("echo"), kit.Hear, kit.Asking,
		// shaky has an effect, then one of unknown outcome, and fails as long as its
		// input is broken.
		perdure.NewFlow("shaky", func(ctx context.Context, in string) (string, error) {
			key, err := effect(ctx, "effect")
			if err != nil {
				return "", err
			}
			_, err = perdure.Step(ctx, "fails", func(context.Context) (bool, error) {
				if _, is := broken.Load(in); is {
					return false, perdure.Permanent(errors.New("broken"))
				}
				return true, nil
			})
			if err != nil {
				return key, err
			}
			last, err := effect(ctx, "last")
			return key + " " + last, err
		}),
		// asks has an effect once a person has allowed it.
		perdure.NewFlow("asks", func(ctx context.Context, in string) (string, error) {
			if _, err := perdure.Ask[string](ctx, "may-i", perdure.Question{Prompt: in}); err != nil {
				return "", err
			}
			return effect(ctx, "allowed")
		}),
		// parent has a child, which fails as long as its input is broken.
		perdure.NewFlow("parent", func(ctx context.Context, in string) (string, error) {
			c, err := perdure.Spawn(ctx, "child", "shaky", in)
			if err != nil {
				return "", err
			}
			return perdure.Join[string](ctx, "join", c)
		}),
	}
}

// kitOn returns a runtime with a worker and an archive.
func kitOn(t *testing.T, s store.Store, p archive.Place) *kit.Kit {
	t.Helper()
	return kit.New(t, s, perdure.Options{Archive: p}, flows()...)
}

func export(t *testing.T, rt *perdure.Runtime, thread string) string {
	t.Helper()
	var b bytes.Buffer
	kit.NoErr(t, rt.Export(t.Context(), thread, &b, perdure.ExportOptions{}))
	return b.String()
}

func mustArchive(t *testing.T, rt *perdure.Runtime, thread string) *perdure.ArchivedThread {
	t.Helper()
	a, err := rt.Archive(t.Context(), thread, perdure.Note{By: "tester"})
	if err != nil {
		t.Fatalf("Archive: %v", err)
	}
	return a
}

func mustRestore(t *testing.T, rt *perdure.Runtime, thread string) {
	t.Helper()
	if err := rt.Restore(t.Context(), thread, perdure.RestoreOptions{}); err != nil {
		t.Fatalf("Restore: %v", err)
	}
}

// dying calls do with a runtime whose store crashes as planned, and reports whether
// that failed.
func dying(t *testing.T, s store.Store, p archive.Place, plan faulty.Plan, do func(context.Context, *perdure.Runtime) error) bool {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	f := faulty.New(s, plan)
	f.OnCrash(cancel)
	rt, err := perdure.New(ctx, f, perdure.Options{Version: "test", Archive: p}, flows()...)
	if err == nil {
		err = do(ctx, rt)
	}
	return err != nil
}

func asArchived(err error, as **perdure.ArchivedError) bool { return errors.As(err, as) }

// cellsOf returns the kinds of cells that a store holds of threads, with how many.
func cellsOf(t *testing.T, s store.Store) string {
	t.Helper()
	kinds := map[string]int{}
	for _, name := range kit.Leftovers(t, s) {
		kind, _, _ := strings.Cut(name, "/")
		kinds[kind]++
	}
	return fmt.Sprint(kinds)
}

// waits spawns a child, joins it and waits for the signal "go".
var waits = perdure.NewFlow("waits", func(ctx context.Context, in string) (string, error) {
	c, err := perdure.Spawn(ctx, "child", "echo", in)
	if err != nil {
		return "", err
	}
	if _, err := perdure.Join[string](ctx, "join", c); err != nil {
		return "", err
	}
	return perdure.Receive[string](ctx, "word", "go", 0)
})

package storetest

import (
	"context"
	"iter"
	"strings"
	"testing"

	"github.com/perdure/perdure/store"
)

// clearWrap forwards everything by Unwrap.
type clearWrap struct{ store.Store }

func (w clearWrap) Unwrap() store.Store { return w.Store }

// opaque hides the upgrades.
type opaque struct{ store.Store }

// lost has an Unwrap that leads nowhere.
type lost struct{ store.Store }

func (lost) Unwrap() store.Store { return nil }

// boastful claims a durability of its own.
type boastful struct{ clearWrap }

func (boastful) Durability() store.Durability { return store.Power }

// blind watches without looking inside.
type blind struct{ clearWrap }

func (blind) Watch(ctx context.Context, _ string) iter.Seq[struct{}] {
	return func(yield func(struct{}) bool) {
		if yield(struct{}{}) {
			<-ctx.Done()
		}
	}
}

// mute casts to no one but itself.
type mute struct {
	clearWrap
	hub *store.Hub
}

func (m mute) Cast(ctx context.Context, topic string, message []byte) error {
	return m.hub.Cast(ctx, topic, message)
}

func (m mute) Listen(ctx context.Context, topic string) iter.Seq[[]byte] {
	return m.hub.Listen(ctx, topic)
}

func (m mute) Close() error {
	m.hub.Stop()
	return m.clearWrap.Close()
}

// garbled changes messages on their way out only.
type garbled struct{ clearWrap }

func (g garbled) Cast(ctx context.Context, topic string, message []byte) error {
	return store.Cast(ctx, g.Store, topic, append([]byte("sealed "), message...))
}

func (g garbled) Listen(ctx context.Context, topic string) iter.Seq[[]byte] {
	return store.Listen(ctx, g.Store, topic)
}

func TestWraps(t *testing.T) {
	t.Run("one", func(t *testing.T) {
		Wraps(t, func(s store.Store) store.Store { return clearWrap{s} })
	})
	t.Run("two", func(t *testing.T) {
		Wraps(t, func(s store.Store) store.Store { return clearWrap{clearWrap{s}} })
	})
	t.Run("none", func(t *testing.T) {
		Wraps(t, func(s store.Store) store.Store { return s })
	})
}

func TestWrapsCatches(t *testing.T) {
	for _, test := range []struct {
		name string
		wrap func(s store.Store) store.Store
		want map[string]string // what the cases that fail say
	}{
		{"opaque", func(s store.Store) store.Store { return opaque{s} }, map[string]string{
			"unwrap": "has no Unwrap", "durability": "no store.Durable", "watch": "no store.Watcher", "cast": "no store.Caster",
		}},
		{"opaque inside", func(s store.Store) store.Store { return clearWrap{opaque{s}} }, map[string]string{
			"unwrap": "has no Unwrap", "durability": "no store.Durable", "watch": "no store.Watcher", "cast": "no store.Caster",
		}},
		{"lost", func(s store.Store) store.Store { return lost{s} }, map[string]string{
			"unwrap": "returned nil", "durability": "no store.Durable", "watch": "no store.Watcher", "cast": "no store.Caster",
		}},
		{"boastful", func(s store.Store) store.Store { return boastful{clearWrap{s}} }, map[string]string{"durability": "whose class is process"}},
		{"blind", func(s store.Store) store.Store { return blind{clearWrap{s}} }, map[string]string{"watch": "does not reach"}},
		{"mute", func(s store.Store) store.Store { return mute{clearWrap{s}, store.NewHub()} }, map[string]string{"cast": "does not reach"}},
		{"garbled", func(s store.Store) store.Store { return garbled{clearWrap{s}} }, map[string]string{"cast": "cast was"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			for _, c := range wrapCases {
				failed, log := record(t, func(tb testing.TB) { c.check(tb, test.wrap) })
				want, fails := test.want[c.name]
				if failed != fails || !strings.Contains(log, want) {
					t.Errorf("%s failed: %v, want %v and %q; it said:\n%s", c.name, failed, fails, want, log)
				}
			}
		})
	}
}

package memory_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/agent/memory"
	"github.com/perdure/perdure/internal/kit"
	"github.com/perdure/perdure/internal/natstest"
	"github.com/perdure/perdure/internal/s3test"
	"github.com/perdure/perdure/internal/sweeps"
	"github.com/perdure/perdure/perduretest"
	"github.com/perdure/perdure/store/memstore"
	_ "github.com/perdure/perdure/store/natsstore"
	_ "github.com/perdure/perdure/store/pgstore"
	_ "github.com/perdure/perdure/store/redisstore"
	_ "github.com/perdure/perdure/store/s3store"
)

func newMemory(t *testing.T) (*perdure.Runtime, *memory.Memory) {
	t.Helper()
	rt, err := perdure.New(t.Context(), memstore.New(), perdure.Options{Version: "test"})
	if err != nil {
		t.Fatal(err)
	}
	return rt, memory.Of(rt)
}

func init() {
	sweeps.Stores["postgres"] = kit.Postgres
	sweeps.Stores["redis"] = kit.Redis
	sweeps.Stores["nats"] = kit.At(natstest.Volatile)
	kit.Costly("s3", kit.At(s3test.Empty))
}

func TestMemoryKeepsVersions(t *testing.T) {
	ctx, ann := t.Context(), memory.User("ann", "clerk")
	rt, m := newMemory(t)
	if _, err := m.Get(ctx, ann, "tone"); !errors.Is(err, memory.ErrNotFound) {
		t.Fatal(err)
	}
	first, err := m.Put(ctx, ann, "tone", map[string]any{"a": "<b>"}, memory.PutOptions{Create: true})
	if err != nil {
		t.Fatal(err)
	}
	for _, o := range []memory.PutOptions{{Create: true}, {Version: first + "x"}} {
		_, err := m.Put(ctx, ann, "tone", 1, o)
		conflict, ok := errors.AsType[*memory.ConflictError](err)
		if !ok || conflict.Version != first || !errors.Is(err, memory.ErrConflict) {
			t.Errorf("%+v: %v", o, err)
		}
	}
	if _, err := m.Put(ctx, ann, "tone", json.RawMessage(`9007199254740993`), memory.PutOptions{Version: first}); err != nil {
		t.Fatal(err)
	}
	item, err := m.Get(ctx, ann, "tone")
	if err != nil || string(item.Value) != "9007199254740993" || !slices.Equal(item.Namespace, ann) {
		t.Fatal(item, err)
	}
	if err := m.Delete(ctx, ann, "tone", first); !errors.Is(err, memory.ErrConflict) {
		t.Error(err)
	}
	if _, err := memory.Of(rt.Tenant("other")).Get(ctx, ann, "tone"); !errors.Is(err, memory.ErrNotFound) {
		t.Errorf("another tenant reads it: %v", err)
	}
	if err := m.Clear(ctx, memory.User("ann")); err != nil {
		t.Error(err)
	}
	for item, err := range m.List(ctx, nil, memory.ListOptions{}) {
		t.Errorf("left is %v, %v", item, err)
	}
	for name, v := range map[string]any{"no UTF-8": "a\xff", "half a surrogate": json.RawMessage(`"\ud800"`), "a channel": make(chan int), "no JSON": json.RawMessage(`{`)} {
		if _, err := m.Put(ctx, ann, "k", v, memory.PutOptions{}); !errors.Is(err, perdure.ErrNotJSON) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := m.Put(ctx, ann, "k", strings.Repeat("x", 1<<18), memory.PutOptions{}); !errors.Is(err, perdure.ErrTooLarge) {
		t.Error(err)
	}
	if _, err := m.Put(ctx, ann, "", "x", memory.PutOptions{}); !errors.Is(err, memory.ErrNamespace) {
		t.Error(err)
	}
	for _, text := range []string{`\ufffd`, "\ufffd", `a\\ufffd`} {
		if _, err := m.Put(ctx, ann, "k", text, memory.PutOptions{}); err != nil {
			t.Errorf("%q: %v", text, err)
		}
	}
}

func TestMemoryIsListedAndSearched(t *testing.T) {
	ctx := t.Context()
	_, m := newMemory(t)
	for i := range 150 {
		text := "nothing"
		if i%10 == 0 {
			text = "likes RED apples"
		}
		if _, err := m.Put(ctx, memory.User("ann", fmt.Sprint("part-", i%3)), fmt.Sprint("key-", i), map[string]string{"text": text}, memory.PutOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := m.Put(ctx, memory.User("bob"), "key", "red apples", memory.PutOptions{}); err != nil {
		t.Fatal(err)
	}
	seen := map[string]bool{}
	cursor := ""
	for range 100 {
		n := 0
		for item, err := range m.List(ctx, memory.User("ann"), memory.ListOptions{Query: "apples red", After: cursor, Limit: 4}) {
			if err != nil {
				t.Fatal(err)
			}
			if seen[item.Key] {
				t.Errorf("%s is listed twice", item.Key)
			}
			seen[item.Key], cursor = true, item.Cursor
			n++
		}
		if n == 0 {
			break
		}
	}
	if len(seen) != 15 {
		t.Errorf("%d are found, want 15", len(seen))
	}
	if _, err := m.Put(ctx, memory.User("ann"), "best", []string{"apples", "red", "pears"}, memory.PutOptions{}); err != nil {
		t.Fatal(err)
	}
	best, err := m.Search(ctx, memory.User("ann"), "does she like red pears or apples?", 3)
	if err != nil || len(best) != 3 || best[0].Key != "best" {
		t.Errorf("%v, %v", best, err)
	}
	if none, err := m.Search(ctx, memory.User("ann"), "zebra", 3); err != nil || len(none) != 0 {
		t.Errorf("%v, %v", none, err)
	}
	if newest, err := m.Search(ctx, memory.User("ann"), "", 3); err != nil || len(newest) != 3 {
		t.Errorf("%v, %v", newest, err)
	}
}

func TestMemoryIsForgottenInTime(t *testing.T) {
	perduretest.Virtual(t, perduretest.Setup{}, func(t *testing.T, e *perduretest.Env) {
		m := memory.Of(e.Runtime())
		if _, err := m.Put(t.Context(), nil, "k", "v", memory.PutOptions{TTL: 24 * time.Hour}); err != nil {
			t.Fatal(err)
		}
		e.Advance(24*time.Hour - time.Second)
		if _, err := m.Get(t.Context(), nil, "k"); err != nil {
			t.Error(err)
		}
		e.Advance(time.Second)
		if _, err := m.Get(t.Context(), nil, "k"); !errors.Is(err, memory.ErrNotFound) {
			t.Error(err)
		}
	})
}

func TestARunReachesItsOwnersMemoryOnly(t *testing.T) {
	var escaped *memory.Memory
	reach := perdure.NewFlow("reach", func(ctx context.Context, ns memory.Namespace) (string, error) {
		m, err := memory.Here(ctx)
		if err != nil {
			return "", err
		}
		if _, err := m.Get(ctx, nil, "k"); !errors.Is(err, perdure.ErrNoLeaf) {
			return "", fmt.Errorf("flow code reads memory: %v", err)
		}
		return perdure.Step(ctx, "reach", func(ctx context.Context) (string, error) {
			if escaped != nil {
				m = escaped
			}
			escaped = m
			_, put := m.Put(ctx, ns, "k", "mine", memory.PutOptions{})
			_, get := m.Get(ctx, ns, "k")
			_, search := m.Search(ctx, ns, "", 1)
			for _, err := range []error{put, get, search, m.Clear(ctx, append(ns, "x"))} {
				if err != nil {
					return fmt.Sprint(errors.Is(err, memory.ErrNamespace)), nil
				}
			}
			return "reached", nil
		})
	})
	perduretest.Virtual(t, perduretest.Setup{Flows: []perdure.Flow{reach}}, func(t *testing.T, e *perduretest.Env) {
		rt := e.Runtime()
		if _, err := memory.Here(t.Context()); !errors.Is(err, perdure.ErrNoRun) {
			t.Error(err)
		}
		for i, tt := range []struct {
			user string
			ns   memory.Namespace
			want string
		}{
			{"ann", nil, "true"}, // the empty one is the owner's; Clear of "x" is not
			{"ann", memory.User("ann"), "reached"}, {"ann", memory.User("ann", "..", "bob"), "reached"},
			{"ann", memory.User("bob"), "true"}, {"ann", memory.Namespace{"user"}, "true"}, {"ann", memory.Namespace{"ann"}, "true"},
			{"ann", memory.Namespace{"user/ann"}, "true"}, {"", memory.User("ann"), "true"}, {"", memory.User(""), "reached"},
		} {
			escaped = nil
			thread := fmt.Sprint("t", i)
			if _, err := rt.Start(t.Context(), perdure.StartRequest{Thread: thread, Flow: "reach", Input: tt.ns, User: tt.user}); err != nil {
				t.Fatal(err)
			}
			got, err := perdure.Output[string](e.Wait(thread, perdure.Succeeded))
			if err != nil || got != tt.want {
				t.Errorf("%q reaches for %q: %s, want %s (%v)", tt.user, []string(tt.ns), got, tt.want, err)
			}
		}
		// What one thread got does not serve another user's.
		if _, err := rt.Start(t.Context(), perdure.StartRequest{Thread: "eve", Flow: "reach", Input: memory.User(""), User: "eve"}); err != nil {
			t.Fatal(err)
		}
		if got, err := perdure.Output[string](e.Wait("eve", perdure.Succeeded)); err != nil || got != "true" {
			t.Errorf("eve uses another's memory: %s %v", got, err)
		}
	})
}

// TestAStepPutsOnce crashes at every write: an expectation that a step has is
// met by what it wrote itself before the crash.
func TestAStepPutsOnce(t *testing.T) {
	keep := perdure.NewFlow("keep", func(ctx context.Context, _ string) (string, error) {
		version, err := perdure.Step(ctx, "create", func(ctx context.Context) (string, error) {
			m, err := memory.Here(ctx)
			if err != nil {
				return "", err
			}
			v, err := m.Put(ctx, nil, "k", 1, memory.PutOptions{Create: true})
			return "version=" + v, err
		})
		if err != nil {
			return "", err
		}
		return perdure.Step(ctx, "replace", func(ctx context.Context) (string, error) {
			m, err := memory.Here(ctx)
			if err != nil {
				return "", err
			}
			if _, err := m.Put(ctx, nil, "k", 2, memory.PutOptions{Version: strings.TrimPrefix(version, "version=")}); err != nil {
				return "", err
			}
			item, err := m.Get(ctx, nil, "k")
			if err != nil {
				return "", err
			}
			return string(item.Value), nil
		})
	})
	perduretest.CrashEverywhere(t, perduretest.Crash{
		Want:  perdure.Succeeded,
		Flows: []perdure.Flow{keep},
		Start: []perdure.StartRequest{{Flow: "keep", Input: "", User: "ann"}},
		Same:  func(s string) string { return regexp.MustCompile(`version=\w+`).ReplaceAllString(s, "version") },
	})
}

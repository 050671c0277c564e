package shelf_test

import (
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/perdure/perdure/internal/shelf"
	"github.com/perdure/perdure/store"
	"github.com/perdure/perdure/store/memstore"
)

func hostOf(s store.Store, tenant string) *shelf.Host {
	return &shelf.Host{Store: s, Tenant: tenant, Hash: func(texts ...string) []byte {
		h := sha256.New()
		for _, t := range texts {
			fmt.Fprintf(h, "%d:%s", len(t), t)
		}
		return h.Sum(nil)
	}}
}

func text(s string) json.RawMessage {
	raw, _ := json.Marshal(s)
	return raw
}

func all(t *testing.T, s *shelf.Shelf, ns ...string) map[string]string {
	t.Helper()
	found := map[string]string{}
	for item, err := range s.List(t.Context(), ns, "") {
		if err != nil {
			t.Fatal(err)
		}
		found[strings.Join(item.Namespace, "|")+":"+item.Key] = string(item.Value)
	}
	return found
}

func TestValuesAreKeptByVersion(t *testing.T) {
	ctx, s := t.Context(), shelf.New(hostOf(memstore.New(), ""), shelf.Memory)
	ns := []string{"user", "ann"}
	if _, err := s.Get(ctx, ns, "tone"); !errors.Is(err, shelf.ErrNotFound) {
		t.Fatalf("nothing is there: %v", err)
	}
	first, err := s.Put(ctx, ns, "tone", text("dry"), shelf.PutOptions{Create: true})
	if err != nil {
		t.Fatal(err)
	}
	_, err = s.Put(ctx, ns, "tone", text("wet"), shelf.PutOptions{Create: true})
	conflict, ok := errors.AsType[*shelf.ConflictError](err)
	if !ok || conflict.Now != first.Version {
		t.Fatalf("creating it twice: %v", err)
	}
	second, err := s.Put(ctx, ns, "tone", text("warm"), shelf.PutOptions{Version: first.Version})
	if err != nil || !second.Created.Equal(first.Created) {
		t.Fatal(second, err)
	}
	if _, err = s.Put(ctx, ns, "tone", text("cold"), shelf.PutOptions{Version: first.Version}); !errors.Is(err, shelf.ErrConflict) {
		t.Fatalf("an old version is replaced: %v", err)
	}
	if err := s.Delete(ctx, ns, "tone", first.Version); !errors.Is(err, shelf.ErrConflict) {
		t.Fatalf("an old version is deleted: %v", err)
	}
	got, err := s.Get(ctx, ns, "tone")
	if err != nil || cmp.Diff(got, second) != "" {
		t.Fatal(cmp.Diff(got, second), err)
	}
	if at, err := s.At(ctx, got.Place); err != nil || string(at.Value) != `"warm"` {
		t.Fatal(at, err)
	}
	for range 2 {
		if err := s.Delete(ctx, ns, "tone", second.Version); err != nil {
			t.Fatal(err)
		}
	}
	if _, err = s.Put(ctx, ns, "tone", text("late"), shelf.PutOptions{Version: second.Version}); !errors.Is(err, shelf.ErrConflict) {
		t.Fatalf("what is gone is replaced: %v", err)
	}
}

func TestOneWriteHappensOnce(t *testing.T) {
	ctx, s := t.Context(), shelf.New(hostOf(memstore.New(), ""), shelf.Memory)
	first, err := s.Put(ctx, nil, "k", text("a"), shelf.PutOptions{Create: true, Once: "step"})
	if err != nil {
		t.Fatal(err)
	}
	again, err := s.Put(ctx, nil, "k", text("a"), shelf.PutOptions{Create: true, Once: "step"})
	if err != nil || again.Version != first.Version {
		t.Fatalf("the same write again: %v %v", again, err)
	}
	for _, other := range []shelf.PutOptions{{Create: true, Once: "other"}, {Create: true}} {
		if _, err := s.Put(ctx, nil, "k", text("a"), other); !errors.Is(err, shelf.ErrConflict) {
			t.Errorf("%+v: %v", other, err)
		}
	}
}

func TestKindsAndTenantsDoNotReachEachOther(t *testing.T) {
	ctx, s := t.Context(), memstore.New()
	shelves := map[string]*shelf.Shelf{}
	for _, tenant := range []string{"", "a", "b", "a/b", "memory"} {
		for _, kind := range []shelf.Kind{shelf.Memory, shelf.Rule, shelf.Credential} {
			shelves[tenant+"-"+string(kind)] = shelf.New(hostOf(s, tenant), kind)
		}
	}
	var places []string
	for name, sh := range shelves {
		item, err := sh.Put(ctx, []string{"user"}, "k", text(name), shelf.PutOptions{Create: true})
		if err != nil {
			t.Fatal(name, err)
		}
		places = append(places, item.Place)
	}
	for name, sh := range shelves {
		if diff := cmp.Diff(all(t, sh), map[string]string{"user:k": string(text(name))}); diff != "" {
			t.Error(name, diff)
		}
		found := 0
		for _, place := range append(places, "~", "..", "../rule/x~", "", strings.Repeat("a", 600)+"~") {
			if _, err := sh.At(ctx, place); err == nil {
				found++
			} else if !errors.Is(err, shelf.ErrNotFound) {
				t.Errorf("%s at %q: %v", name, place, err)
			}
		}
		if found != 1 {
			t.Errorf("%s reaches %d places, want its own", name, found)
		}
	}
}

func TestARecordInAnotherPlaceIsRefused(t *testing.T) {
	ctx, inner := t.Context(), memstore.New()
	s := shelf.New(hostOf(inner, ""), shelf.Credential)
	for _, user := range []string{"ann", "bob"} {
		if _, err := s.Put(ctx, []string{user}, "k", text(user), shelf.PutOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	var cells []store.Cell
	for cell, err := range inner.List(ctx, "shelf/", "") {
		if err != nil {
			t.Fatal(err)
		}
		cells = append(cells, cell)
	}
	if _, err := inner.Put(ctx, cells[0].Key, cells[1].Value, cells[0].Version); err != nil {
		t.Fatal(err)
	}
	refused := 0
	for _, user := range []string{"ann", "bob"} {
		if item, err := s.Get(ctx, []string{user}, "k"); errors.Is(err, store.ErrCorrupt) {
			refused++
		} else if err != nil || string(item.Value) != string(text(user)) {
			t.Errorf("%s gets %+v, %v", user, item, err)
		}
	}
	if refused != 1 {
		t.Errorf("%d are refused, want 1", refused)
	}
	var seen, damaged int
	for _, err := range s.List(ctx, nil, "") {
		if err != nil {
			damaged++
		} else {
			seen++
		}
	}
	if seen != 1 || damaged != 1 {
		t.Errorf("the list shows %d good and %d errors", seen, damaged)
	}
	if err := s.Clear(ctx, nil); err != nil || len(all(t, s)) != 0 {
		t.Error("what is damaged cannot be cleared:", err)
	}
}

func TestValuesEndWithTheirTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, inner := t.Context(), memstore.New()
		s := shelf.New(hostOf(inner, ""), shelf.Memory)
		old, err := s.Put(ctx, nil, "short", text("a"), shelf.PutOptions{TTL: time.Hour})
		if err != nil {
			t.Fatal(err)
		}
		for _, key := range []string{"shorter", "stays"} {
			ttl := map[string]time.Duration{"shorter": time.Minute}[key]
			if _, err := s.Put(ctx, nil, key, text("b"), shelf.PutOptions{TTL: ttl}); err != nil {
				t.Fatal(err)
			}
		}
		time.Sleep(time.Hour - 1)
		if got := all(t, s); len(got) != 2 || got[":short"] == "" {
			t.Fatalf("just before: %v", got)
		}
		time.Sleep(time.Nanosecond)
		if _, err := s.Put(ctx, nil, "short", text("c"), shelf.PutOptions{Version: old.Version}); !errors.Is(err, shelf.ErrConflict) {
			t.Errorf("what is over is replaced by its version: %v", err)
		}
		if _, err := s.Get(ctx, nil, "short"); !errors.Is(err, shelf.ErrNotFound) {
			t.Errorf("what is over is there: %v", err)
		}
		if got := all(t, s); len(got) != 1 {
			t.Errorf("just after: %v", got)
		}
		cells := 0
		for range inner.List(ctx, "shelf/", "") {
			cells++
		}
		if cells != 1 {
			t.Errorf("%d cells are left, want what stays", cells)
		}
		if _, err := s.Put(ctx, nil, "short", text("new"), shelf.PutOptions{Create: true, TTL: time.Nanosecond}); err != nil {
			t.Error(err)
		}
		time.Sleep(time.Nanosecond)
		if item, err := s.Put(ctx, nil, "short", text("newer"), shelf.PutOptions{Create: true}); err != nil || !item.Expires.IsZero() {
			t.Error("what is over is in the way:", item, err)
		}
	})
}

func TestLimitsAreHeld(t *testing.T) {
	ctx, s := t.Context(), shelf.New(hostOf(memstore.New(), ""), shelf.Memory)
	long := strings.Repeat("\x01", shelf.MaxText) // grows sixfold in JSON
	most := slices.Repeat([]string{long}, shelf.MaxSegments)
	value := text(strings.Repeat("<", shelf.MaxValue-2)) // Marshal makes it larger
	value = json.RawMessage(strings.ReplaceAll(string(value), `\u003c`, "<"))
	if _, err := s.Put(ctx, most, long, value, shelf.PutOptions{}); err != nil {
		t.Errorf("the largest value: %v", err)
	}
	for name, err := range map[string]error{
		"value":    put(t, s, nil, "k", append(slices.Clone(value[:len(value)-1]), `a"`...)),
		"no JSON":  put(t, s, nil, "k", json.RawMessage("{")),
		"segments": put(t, s, append(most, "x"), "k", text("v")),
		"segment":  put(t, s, []string{long + "x"}, "k", text("v")),
		"UTF-8":    put(t, s, []string{"\xff"}, "k", text("v")),
		"key":      put(t, s, nil, long+"x", text("v")),
		"no key":   put(t, s, nil, "", text("v")),
		"ttl":      func() error { _, err := s.Put(ctx, nil, "k", text("v"), shelf.PutOptions{TTL: -1}); return err }(),
	} {
		if !errors.Is(err, shelf.ErrInvalid) && !errors.Is(err, shelf.ErrTooLarge) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if got := all(t, s); len(got) != 1 {
		t.Errorf("%d values are there, want 1", len(got))
	}
}

func put(t *testing.T, s *shelf.Shelf, ns []string, key string, value json.RawMessage) error {
	_, err := s.Put(t.Context(), ns, key, value, shelf.PutOptions{})
	return err
}

// hostile are texts that would collide or escape where names are glued.
var hostile = rapid.SampledFrom([]string{"", ".", "..", "/", "a", "a/b", "b", "a.b", "~", "~a", "A", "é", "e\u0301", "a\x00", "\x00", "user", "1:a", " ", "%2f", "*"})

func TestNamespacesNeverCollide(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		ctx, s := t.Context(), shelf.New(hostOf(memstore.New(), "t"), shelf.Memory)
		type name struct {
			ns  []string
			key string
		}
		id := func(n name) string { return fmt.Sprintf("%q", append(slices.Clone(n.ns), "key", n.key)) }
		gen := rapid.Custom(func(t *rapid.T) name {
			return name{rapid.SliceOfN(hostile, 0, 4).Draw(t, "ns"), hostile.Filter(func(s string) bool { return s != "" }).Draw(t, "key")}
		})
		model := map[string]name{}
		for _, n := range rapid.SliceOfN(gen, 1, 20).Draw(t, "names") {
			if _, err := s.Put(ctx, n.ns, n.key, text(id(n)), shelf.PutOptions{}); err != nil {
				t.Fatal(err)
			}
			model[id(n)] = n
		}
		for _, n := range model {
			item, err := s.Get(ctx, n.ns, n.key)
			if err != nil || string(item.Value) != string(text(id(n))) || id(name{item.Namespace, item.Key}) != id(n) {
				t.Fatalf("%v is %+v, %v", n, item, err)
			}
		}
		below := rapid.SliceOfN(hostile, 0, 3).Draw(t, "below")
		var want, got []string
		for _, n := range model {
			if len(n.ns) >= len(below) && slices.Equal(n.ns[:len(below)], below) {
				want = append(want, id(n))
			}
		}
		for item, err := range s.List(ctx, below, "") {
			if err != nil {
				t.Fatal(err)
			}
			got = append(got, id(name{item.Namespace, item.Key}))
		}
		slices.Sort(want)
		slices.Sort(got)
		if diff := cmp.Diff(want, got); diff != "" {
			t.Fatalf("below %q: %s", below, diff)
		}
	})
}

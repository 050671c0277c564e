package due

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/perdure/perdure/store"
	"github.com/perdure/perdure/store/memstore"
)

// pages returns what is on the pages of the flow, each of at most size hints.
func pages(t testing.TB, s store.Store, size int) []string {
	t.Helper()
	var got []string
	after, more := "", true
	for range 100 {
		var hints []Hint
		var err error
		hints, after, more, err = Page(t.Context(), s, "flow", after, size)
		if err != nil || len(hints) > size {
			t.Fatalf("a page of %d hints, want %d: %v", len(hints), size, err)
		}
		for _, h := range hints {
			got = append(got, fmt.Sprintf("%s %s %d %d %v", h.Owner(), h.Thread, h.Seq, h.Due, h.Err != nil))
		}
		if !more {
			return got
		}
	}
	t.Fatalf("the pages do not end: %q", got)
	return nil
}

func TestPagesAreOrderedByOwner(t *testing.T) {
	ctx, s := t.Context(), memstore.New()
	for i, thread := range []string{"z.1.owner--a", "a.1.owner--b", "b.1.owner--b", "a.1.owner--c", "short", "owner--a", "y.1.owner--a"} {
		if err := Announce(ctx, s, "flow", thread, uint64(i+1), 100); err != nil {
			t.Fatal(err)
		}
	}
	want := []string{
		"owner--a owner--a 6 100 false", "owner--a y.1.owner--a 7 100 false", "owner--a z.1.owner--a 1 100 false",
		"owner--b a.1.owner--b 2 100 false", "owner--b b.1.owner--b 3 100 false",
		"owner--c a.1.owner--c 4 100 false", "short short 5 100 false",
	}
	for size := 1; size <= 8; size++ {
		if diff := cmp.Diff(want, pages(t, s, size)); diff != "" {
			t.Errorf("pages of %d (-want +got):\n%s", size, diff)
		}
	}
	hints, last, more, err := Page(ctx, s, "flow", "", len(want))
	if err != nil || more || len(hints) != len(want) {
		t.Fatalf("one page has %d, more %v, %v", len(hints), more, err)
	}
	if hints, again, more, err := Page(ctx, s, "flow", last, 3); err != nil || more || len(hints) != 0 || again != last {
		t.Errorf("behind the last page there are %d, more %v, cursor %q, %v", len(hints), more, again, err)
	}
}

func TestPagesGoOnBehindUnreadableHints(t *testing.T) {
	ctx, s := t.Context(), memstore.New()
	for _, key := range []string{"due/flow/b/b", "due/flow/c/d", "due/flow/c/e/f", "due/flow/an-older-thread", "due/flow//", "due/flow//x", "due/flow/g/"} {
		if _, err := s.Put(ctx, key, []byte(`{"s":1,"d":1,"new":true}`), ""); err != nil {
			t.Fatal(err)
		}
	}
	for _, key := range []string{"due/flow/d", "due/flow/e/f"} {
		if _, err := s.Put(ctx, key, value{5, 100}.encode(), ""); err != nil {
			t.Fatal(err)
		}
	}
	for _, thread := range []string{"a", "z"} {
		if err := Announce(ctx, s, "flow", thread, 5, 100); err != nil {
			t.Fatal(err)
		}
	}
	want := []string{
		"/ / 0 0 true", "/x /x 0 0 true", "a a 5 100 false", "an-older-thread an-older-thread 0 0 true", "b b 0 0 true", "c c/d 0 0 true",
		"c c/e/f 0 0 true", "d d 0 0 true", "e e/f 0 0 true", "g g/ 0 0 true", "z z 5 100 false",
	}
	for size := 1; size <= 12; size++ {
		if diff := cmp.Diff(want, pages(t, s, size)); diff != "" {
			t.Errorf("pages of %d (-want +got):\n%s", size, diff)
		}
	}
}

// Whoever looks at one thread of each owner meets every owner once.
func TestNextOwnerSkipsOneOwner(t *testing.T) {
	ctx, s := t.Context(), memstore.New()
	owners := []string{"0", "00", "000", "a", "a!", "a-", "a0", "a00", "a~", "b", "owner-00", "owner-01", "owner-0\xff", "\x00", "\xff"}
	for i, owner := range owners {
		for j := range i%3 + 1 {
			thread := owner
			if len(owner) == ownerSize {
				thread = strings.Repeat("~", j) + owner
			}
			if err := Announce(ctx, s, "flow", thread, 1, 1); err != nil {
				t.Fatal(err)
			}
		}
	}
	for name, next := range map[string]func(h Hint, last string) string{
		"by cursor": func(_ Hint, last string) string { return NextOwner(last) },
		"by name":   func(h Hint, _ string) string { return NextOwner(h.Owner()) },
	} {
		met := map[string]int{}
		after := ""
		for range 2 * len(owners) {
			hints, last, _, err := Page(ctx, s, "flow", after, 1)
			if err != nil {
				t.Fatal(err)
			}
			if len(hints) == 0 {
				break
			}
			met[hints[0].Owner()]++
			after = next(hints[0], last)
		}
		for _, owner := range owners {
			if met[owner] != 1 {
				t.Errorf("%s: owner %q was met %d times, want once", name, owner, met[owner])
			}
		}
	}
}

func TestOwnerIsTheEndOfAName(t *testing.T) {
	for thread, want := range map[string]string{
		"": "", "a": "a", "1234567": "1234567", "12345678": "12345678", "012345678": "12345678", "tenant.incarnation.12345678": "12345678",
	} {
		if got := Owner(thread); got != want {
			t.Errorf("Owner(%q) = %q, want %q", thread, got, want)
		}
		if got := (Hint{Thread: thread}).Owner(); got != want {
			t.Errorf("the owner of the hint of %q is %q, want %q", thread, got, want)
		}
	}
}

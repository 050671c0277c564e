package kvstore_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/perdure/perdure/store"
	"github.com/perdure/perdure/store/kvstore"
)

// outcome is what became of one operation of the interleaving test.
type outcome struct {
	op   string
	errs []error  // of each call
	read []string // what a read saw
	err  error    // of a read or drop
}

// operate does one operation on a journal that was read to end at after.
func operate(s *kvstore.Store, who, op string, after uint64) (o outcome) {
	ctx := context.Background()
	o.op = op
	switch op {
	case "append", "append twice":
		for n := range len(strings.Fields(op)) {
			first, second := fmt.Sprintf("canary %s%d", who, n), fmt.Sprintf("canary %s%d again", who, n)
			o.errs = append(o.errs, appended(s, "j", after, first, second))
			after += 2
		}
	case "drop":
		o.err = s.Drop(ctx, "j")
	case "read":
		entries, err := store.ReadAll(ctx, s, "j", 0)
		o.read, o.err = text(entries), err
	}
	return o
}

func text(entries []store.Entry) (all []string) {
	for _, e := range entries {
		all = append(all, strings.TrimPrefix(string(e.Data), "canary "))
	}
	return all
}

// At each call that one handle makes to the engine, another handle does a whole
// operation, or the first part of one and dies.
func TestAnotherHandleAtEachCall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		runs := 0
		for _, op := range []string{"append", "append twice", "drop", "read"} {
			for _, other := range []string{"append", "append twice", "drop"} {
				for _, began := range []string{"never", "by another", "by the same"} {
					for _, k := range append(kinds, kind{pack: 1000}) {
						for at := 1; ; at++ {
							met := false
							for dying := 0; ; dying++ { // 0: it lives
								var more bool
								met, more = meet(t, op, other, began, k, at, dying)
								runs++
								if !met || !more {
									break
								}
							}
							if !met {
								break
							}
						}
					}
				}
			}
		}
		t.Logf("%d meetings", runs)
	})
}

// meet does op, and other within its call number at. The handle of other dies
// at its call number dying. It reports whether there was such a call, and
// whether other would have made more calls.
func meet(t *testing.T, op, other, began string, k kind, at, dying int) (met, more bool) {
	e := k.engine()
	kv, kv2 := shake(e, nil), shake(e, map[int]fault{dying: dies})
	s, s2 := kvstore.New(kv, k.options()), kvstore.New(kv2, kvstore.Options{Pack: k.pack / 3})
	writer := kvstore.New(e, k.options())
	if began == "by the same" {
		writer = s // and has the head at hand
	}
	var base []string
	if began != "never" {
		must(t, appended(writer, "j", 0, "canary 1"))
		must(t, appended(writer, "j", 1, "canary 2", "canary 3"))
		must(t, appended(writer, "j", 3, "canary 4"))
		base = []string{"1", "2", "3", "4"}
	}

	var b outcome
	start := kv.calls
	kv.plan = func(n int) fault {
		if n == start+at {
			met = true
			b = operate(s2, "b", other, uint64(len(base)))
		}
		return well
	}
	a := operate(s, "a", op, uint64(len(base)))
	if !met {
		return false, false
	}

	died := kv2.dead
	what := fmt.Sprintf("%s at call %d of %s (begun %s, %+v, dying at %d, died %v): %+v and %+v", other, at, op, began, k, dying, died, a, b)
	for _, o := range []outcome{a, b} {
		for _, err := range append(o.errs, o.err) {
			if err != nil && !errors.Is(err, store.ErrConflict) && !errors.Is(err, store.ErrDropped) && !(died && errors.Is(err, errShaky)) {
				t.Fatalf("%s: %v", what, err)
			}
		}
	}
	entries, err := store.ReadAll(context.Background(), kvstore.New(e, kvstore.Options{}), "j", 0)
	final := text(entries)
	dropped := errors.Is(err, store.ErrDropped)
	if err != nil && !dropped {
		t.Fatalf("%s: it reads as %v", what, err)
	}
	for _, o := range []outcome{a, b} {
		if o.op == "drop" && o.err == nil && !dropped {
			t.Fatalf("%s: a drop was acknowledged, but there is %q", what, final)
		}
	}
	if dropped {
		if !died {
			// No one died, so nothing needs to be dropped again.
			if key, ok := e.holds("canary"); ok {
				t.Fatalf("%s: key %s holds bytes of the dropped journal", what, key)
			}
		}
		must(t, kvstore.New(e, kvstore.Options{}).Drop(context.Background(), "j"))
		if key, ok := e.holds("canary"); ok {
			t.Fatalf("%s: dropped again, and key %s holds bytes of the journal", what, key)
		}
	} else {
		checkBatches(t, what, base, final, map[string]outcome{"a": a, "b": b})
	}
	if op == "read" && a.err == nil {
		checkBatches(t, what, base, a.read, nil)
		if !dropped && !slices.Equal(a.read, final[:len(a.read)]) {
			t.Fatalf("%s: the read is no prefix of %q", what, final)
		}
	}
	return true, dying == 0 || died
}

// checkBatches checks that a journal is its beginning and whole batches, and
// that these are there or not as the appends were answered.
func checkBatches(t *testing.T, what string, base, final []string, outcomes map[string]outcome) {
	t.Helper()
	if len(final) < len(base) || !slices.Equal(final[:len(base)], base) || len(final)%2 != 0 {
		t.Fatalf("%s: the journal is %q", what, final)
	}
	for i := len(base); i < len(final); i += 2 {
		if final[i]+" again" != final[i+1] {
			t.Fatalf("%s: the journal is %q", what, final)
		}
	}
	for who, o := range outcomes {
		for n, err := range o.errs {
			found := 0
			for _, id := range final {
				if id == fmt.Sprint(who, n) {
					found++
				}
			}
			if err == nil && found != 1 || errors.Is(err, store.ErrConflict) && found != 0 || found > 1 {
				t.Fatalf("%s: append %s%d was answered %v and is %d times in %q", what, who, n, err, found, final)
			}
		}
	}
}

package observed_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/perdure/perdure/store"
	"github.com/perdure/perdure/store/faulty"
	"github.com/perdure/perdure/store/memstore"
	"github.com/perdure/perdure/store/observed"
)

// seen is a call with its result.
type seen struct {
	observed.Call
	observed.Result
}

// recorder keeps what it observes, for one goroutine.
type recorder []seen

func (r *recorder) Observe(ctx context.Context, c observed.Call) (context.Context, func(observed.Result)) {
	return ctx, func(result observed.Result) { *r = append(*r, seen{c, result}) }
}

func TestCallsAreObserved(t *testing.T) {
	ctx := t.Context()
	var got recorder
	s := observed.New(memstore.New(), &got)
	for i := range 3 {
		_, _ = s.Append(ctx, "j", uint64(2*i), []byte("two"), []byte("words"))
	}
	_, stale := s.Append(ctx, "j", 1, []byte("stale"))
	_, _ = store.ReadAll(ctx, s, "j", 3)
	for range s.Read(ctx, "j", 0) {
		break
	}
	for range s.Journals(ctx, "i") {
	}
	_, missing := s.Get(ctx, "c")
	v, _ := s.Put(ctx, "c", []byte("value"), "")
	_, _ = s.Get(ctx, "c")
	for range s.List(ctx, "", "") {
	}
	_ = s.Delete(ctx, "c", v)
	_, _ = s.AppendBatch(ctx, store.Batch{Journal: "b", Entries: [][]byte{[]byte("entry")}, Cells: []store.Write{{Key: "d", Value: []byte("value")}, {Key: "e", Optional: true}}})
	_ = s.Drop(ctx, "j")
	_, dropped := store.ReadAll(ctx, s, "j", 0)

	want := recorder{
		{observed.Call{Op: "append", Name: "j"}, observed.Result{Items: 2, Bytes: 8}},
		{observed.Call{Op: "append", Name: "j"}, observed.Result{Items: 2, Bytes: 8}},
		{observed.Call{Op: "append", Name: "j"}, observed.Result{Items: 2, Bytes: 8}},
		{observed.Call{Op: "append", Name: "j"}, observed.Result{Items: 1, Bytes: 5, Err: stale}},
		{observed.Call{Op: "read", Name: "j"}, observed.Result{Items: 3, Bytes: 13}},
		{observed.Call{Op: "read", Name: "j"}, observed.Result{Items: 1, Bytes: 3}},
		{observed.Call{Op: "journals", Name: "i"}, observed.Result{Items: 1}},
		{observed.Call{Op: "get", Name: "c"}, observed.Result{Err: missing}},
		{observed.Call{Op: "put", Name: "c"}, observed.Result{Items: 1, Bytes: 5}},
		{observed.Call{Op: "get", Name: "c"}, observed.Result{Items: 1, Bytes: 5}},
		{observed.Call{Op: "list"}, observed.Result{Items: 1, Bytes: 5}},
		{observed.Call{Op: "delete", Name: "c"}, observed.Result{}},
		{observed.Call{Op: "append", Name: "b"}, observed.Result{Items: 3, Bytes: 10}},
		{observed.Call{Op: "drop", Name: "j"}, observed.Result{}},
		{observed.Call{Op: "read", Name: "j"}, observed.Result{Err: dropped}},
	}
	if diff := cmp.Diff(want, got, cmpopts.EquateErrors(), cmpopts.IgnoreFields(observed.Result{}, "Duration")); diff != "" {
		t.Errorf("observed calls (-want +got):\n%s", diff)
	}
}

// contexts is a store that keeps the context of its last call.
type contexts struct {
	store.Store
	last context.Context
}

func (c *contexts) Get(ctx context.Context, key string) (store.Cell, error) {
	c.last = ctx
	return c.Store.Get(ctx, key)
}

func TestContextReachesTheStore(t *testing.T) {
	type span struct{}
	inner := &contexts{Store: memstore.New()}
	s := observed.New(inner, observed.Func(func(ctx context.Context, c observed.Call) (context.Context, func(observed.Result)) {
		return context.WithValue(ctx, span{}, c.Name), nil
	}))
	_, _ = s.Get(t.Context(), "c")
	if got := inner.last.Value(span{}); got != "c" {
		t.Errorf("the store inside got the span %v, want the one of its call", got)
	}
}

// The time of a read is the store's, not that of the loop around it.
func TestDurationIsTheStores(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var got recorder
		slow := faulty.New(memstore.New(), func(faulty.Call) faulty.Fault { return faulty.Delay(3 * time.Second) })
		s := observed.New(slow, &got)
		_, _ = s.Append(t.Context(), "j", 0, []byte("1"), []byte("2"))
		for range s.Read(t.Context(), "j", 0) {
			time.Sleep(time.Hour)
		}
		for _, call := range got {
			if call.Duration != 3*time.Second {
				t.Errorf("%s took %v, want the 3s that the store was slow", call.Op, call.Duration)
			}
		}
	})
}

func TestPanicInTheLoopEndsTheCall(t *testing.T) {
	var got recorder
	s := observed.New(memstore.New(), &got)
	_, _ = s.Append(t.Context(), "j", 0, []byte("x"))
	func() {
		defer func() { _ = recover() }()
		for range s.Read(t.Context(), "j", 0) {
			panic("in the body")
		}
	}()
	if len(got) != 2 {
		t.Errorf("%d calls have ended, want the append and the read", len(got))
	}
}

// Whatever the observer is given, printed in full, holds no content.
func TestContentsAreNotShown(t *testing.T) {
	const canary = "s3cret"
	var shown bytes.Buffer
	s := observed.New(memstore.New(), observed.Func(func(ctx context.Context, c observed.Call) (context.Context, func(observed.Result)) {
		fmt.Fprintf(&shown, "%+v\n", c)
		return ctx, func(r observed.Result) { fmt.Fprintf(&shown, "%+v\n", r) }
	}))
	for range 2 { // the second time they fail
		_, _ = s.Append(t.Context(), "j", 0, []byte(canary))
		_, _ = s.Put(t.Context(), "c", []byte(canary), "")
	}
	_, _ = s.Get(t.Context(), "c")
	_, _ = store.ReadAll(t.Context(), s, "j", 0)
	for range s.List(t.Context(), "", "") {
	}
	if bytes.Contains(shown.Bytes(), []byte(canary)) || shown.Len() == 0 {
		t.Errorf("the observer saw contents:\n%s", &shown)
	}
}

func TestErrorsPassUnchanged(t *testing.T) {
	s := observed.New(memstore.New(), &observed.Stats{})
	if _, err := s.Get(t.Context(), "none"); !errors.Is(err, store.ErrNotFound) {
		t.Errorf("Get = %v", err)
	}
	s.Close()
	if _, err := s.Append(t.Context(), "j", 0, []byte("x")); !errors.Is(err, store.ErrClosed) {
		t.Errorf("Append = %v", err)
	}
}

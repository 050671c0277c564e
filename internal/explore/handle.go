package explore

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"

	"github.com/perdure/perdure/store"
	"github.com/perdure/perdure/store/memstore"
)

// call is a step that an actor waits to take.
type call struct {
	actor  *Actor
	number int
	op     store.Op
	name   string
	cells  []string // of AppendBatch
	after  string   // of Journals and List
	data   []byte   // of Append, AppendBatch and Put
	args   func() string
	do     func() error  // called by the scheduler, while everything waits
	result func() string // of do, for the trace
	err    error         // the answer, valid when done is closed
	done   chan struct{}
	watch  *watch
	left   bool // its goroutine no longer waits for it
}

// watch is a loop over Watch.
type watch struct {
	prefix string
	dirty  bool // something was written since the last yield
}

// handle is an actor's store. It has no Caster: messages may be lost, so all
// are.
type handle struct{ actor *Actor }

var (
	_ store.Store   = (*handle)(nil)
	_ store.Watcher = (*handle)(nil)
	_ store.Batcher = (*handle)(nil)
)

// Bare makes the threads of the store do without what only multiplies the calls.
func (*handle) Bare() {}

// unbatched hides the batches of a handle.
type unbatched struct{ store.Store }

func (u unbatched) Unwrap() store.Store { return u.Store }

// maxRefused is how many calls a dead actor may try. It would spin for ever.
const maxRefused = 1000

// dead returns ErrKilled if the actor can no longer reach the store.
func (a *Actor) dead() error {
	a.w.mu.Lock()
	gone := a.killed || a.w.over
	if gone {
		a.refused++
	}
	spins := a.refused > maxRefused
	a.w.mu.Unlock()
	if spins {
		select {} // found as a goroutine that stays behind
	}
	if gone {
		return ErrKilled
	}
	return nil
}

// wait hands the call to the scheduler and returns its answer. Quit, if it is
// not nil, ends the wait.
func (a *Actor) wait(c *call, quit <-chan struct{}) error {
	if err := a.dead(); err != nil {
		return err
	}
	c.actor, c.done = a, make(chan struct{})
	a.w.mu.Lock()
	a.w.arrived = append(a.w.arrived, c)
	a.w.mu.Unlock()
	a.w.ring()
	select {
	case <-c.done:
		return c.err
	case <-quit:
		a.w.mu.Lock()
		defer a.w.mu.Unlock()
		c.left = true
		return context.Canceled
	}
}

// Point is a step of the actor that runs with ctx and concerns all others:
// directly behind it the actor may change memory that others use. Name is for
// the trace.
func Point(ctx context.Context, name string) error {
	a, ok := ctx.Value(actorKey{}).(*Actor)
	if !ok {
		return errors.New("explore: Point outside of an actor")
	}
	return a.wait(&call{op: opPoint, name: name, do: ctx.Err}, nil)
}

// answered waits for a call that has a result, which show shows in the trace.
func answered[T any](h *handle, c *call, do func() (T, error), show func(T) string) (T, error) {
	var got T
	c.do = func() (err error) {
		got, err = do()
		return err
	}
	c.result = func() string { return show(got) }
	if err := h.actor.wait(c, nil); err != nil {
		return *new(T), err
	}
	return got, nil
}

func (h *handle) Append(ctx context.Context, journal string, after uint64, entries ...[]byte) (uint64, error) {
	c := &call{op: store.OpAppend, name: journal, data: bytes.Join(entries, nil)}
	c.args = func() string { return appended(after, entries) }
	return answered(h, c, func() (uint64, error) { return h.inner().Append(ctx, journal, after, entries...) }, func(last uint64) string { return fmt.Sprint(last) })
}

func appended(after uint64, entries [][]byte) string {
	b := fmt.Appendf(nil, "after %d:", after)
	for _, e := range entries {
		b = fmt.Appendf(b, " %s", brief(e))
	}
	return string(b)
}

// AppendBatch is one step, an append that concerns the cells too.
func (h *handle) AppendBatch(ctx context.Context, b store.Batch) (uint64, error) {
	if err := store.CheckBatch(b); err != nil {
		return 0, err
	}
	c := &call{op: store.OpAppend, name: b.Journal, data: bytes.Join(b.Entries, nil)}
	for _, w := range b.Cells {
		c.cells = append(c.cells, w.Key)
		c.data = fmt.Appendf(c.data, "%q%q%v%v", w.Key, w.Value, w.Remove, w.Optional)
	}
	c.args = func() string {
		text := []byte(appended(b.After, b.Entries))
		for _, w := range b.Cells {
			text = fmt.Appendf(text, ", %s", writeText(w))
		}
		return string(text)
	}
	return answered(h, c, func() (uint64, error) { return h.inner().AppendBatch(ctx, b) }, func(last uint64) string { return fmt.Sprint(last) })
}

// writeText shows a write of a batch in a trace.
func writeText(w store.Write) string {
	verb := "put"
	if w.Remove {
		verb = "delete"
	}
	if w.Optional {
		verb = "maybe " + verb
	}
	text := fmt.Sprintf("%s %q over version %q", verb, w.Key, w.Prev)
	if !w.Remove {
		text += ": " + brief(w.Value)
	}
	return text
}

func (h *handle) Drop(ctx context.Context, journal string) error {
	c := &call{op: store.OpDrop, name: journal}
	c.do = func() error { return h.inner().Drop(ctx, journal) }
	return h.actor.wait(c, nil)
}

func (h *handle) Get(ctx context.Context, key string) (store.Cell, error) {
	c := &call{op: store.OpGet, name: key}
	return answered(h, c, func() (store.Cell, error) { return h.inner().Get(ctx, key) }, func(cell store.Cell) string { return brief(cell.Value) })
}

func (h *handle) Put(ctx context.Context, key string, value []byte, prev store.Version) (store.Version, error) {
	c := &call{op: store.OpPut, name: key, data: value}
	c.args = func() string { return fmt.Sprintf("over version %q: %s", prev, brief(value)) }
	return answered(h, c, func() (store.Version, error) { return h.inner().Put(ctx, key, value, prev) }, func(v store.Version) string { return fmt.Sprintf("version %q", v) })
}

func (h *handle) Delete(ctx context.Context, key string, prev store.Version) error {
	c := &call{op: store.OpDelete, name: key}
	c.args = func() string { return fmt.Sprintf("version %q", prev) }
	c.do = func() error { return h.inner().Delete(ctx, key, prev) }
	return h.actor.wait(c, nil)
}

func (h *handle) Read(ctx context.Context, journal string, after uint64) iter.Seq2[store.Entry, error] {
	c := call{op: store.OpRead, name: journal}
	c.args = func() string { return fmt.Sprintf("after %d", after) }
	return atOnce(ctx, h, c, func() iter.Seq2[store.Entry, error] { return h.inner().Read(ctx, journal, after) })
}

func (h *handle) Journals(ctx context.Context, after string) iter.Seq2[string, error] {
	c := call{op: store.OpJournals, after: after}
	c.args = func() string { return fmt.Sprintf("after %q", after) }
	return atOnce(ctx, h, c, func() iter.Seq2[string, error] { return h.inner().Journals(ctx, after) })
}

func (h *handle) List(ctx context.Context, prefix, after string) iter.Seq2[store.Cell, error] {
	c := call{op: store.OpList, name: prefix, after: after}
	c.args = func() string { return fmt.Sprintf("after %q", after) }
	return atOnce(ctx, h, c, func() iter.Seq2[store.Cell, error] { return h.inner().List(ctx, prefix, after) })
}

// atOnce is a loop that takes all its items in one step, when it starts.
func atOnce[T any](ctx context.Context, h *handle, proto call, open func() iter.Seq2[T, error]) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		var none T
		var items []T
		c := proto // a sequence may be looped over twice
		c.do = func() error {
			for item, err := range open() {
				if err != nil {
					return err
				}
				items = append(items, item)
			}
			return nil
		}
		c.result = func() string { return fmt.Sprintf("%d found", len(items)) }
		if err := h.actor.wait(&c, nil); err != nil {
			yield(none, err)
			return
		}
		for _, item := range items {
			err := h.actor.dead()
			if err == nil {
				err = ctx.Err()
			}
			if err != nil {
				yield(none, err)
				return
			}
			if !yield(item, nil) {
				return
			}
		}
	}
}

// Watch makes each yield a step, so that wake-ups can also come late and for
// several writes together.
func (h *handle) Watch(ctx context.Context, prefix string) iter.Seq[struct{}] {
	return func(yield func(struct{}) bool) {
		w, world := &watch{prefix: prefix, dirty: true}, h.actor.w
		world.mu.Lock()
		world.watches = append(world.watches, w)
		world.mu.Unlock()
		defer func() {
			world.mu.Lock()
			defer world.mu.Unlock()
			world.watches = slices.DeleteFunc(world.watches, func(o *watch) bool { return o == w })
		}()
		for ctx.Err() == nil {
			c := &call{op: opWatch, name: prefix, watch: w}
			c.do = func() error {
				w.dirty = false
				return ctx.Err()
			}
			if h.actor.wait(c, ctx.Done()) != nil || !yield(struct{}{}) {
				return
			}
		}
	}
}

// Close does nothing: the store is the world's.
func (h *handle) Close() error { return nil }

func (h *handle) inner() *memstore.Store { return h.actor.w.inner }

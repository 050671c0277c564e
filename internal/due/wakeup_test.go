package due

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/perdure/perdure/store"
	"github.com/perdure/perdure/store/memstore"
)

// network is a store at the end of a line that is slow, loses answers, and
// brings writes after their caller has given up on them.
type network struct {
	store.Store
	mu  sync.Mutex
	rnd *rand.Rand
}

var errLine = errors.New("the line is dead")

func (n *network) Put(ctx context.Context, key string, value []byte, prev store.Version) (store.Version, error) {
	return send(n, func() (store.Version, error) { return n.Store.Put(context.WithoutCancel(ctx), key, value, prev) })
}

func (n *network) Delete(ctx context.Context, key string, prev store.Version) error {
	_, err := send(n, func() (any, error) { return nil, n.Store.Delete(context.WithoutCancel(ctx), key, prev) })
	return err
}

func (n *network) Get(ctx context.Context, key string) (store.Cell, error) {
	return send(n, func() (store.Cell, error) { return n.Store.Get(context.WithoutCancel(ctx), key) })
}

func (n *network) Append(ctx context.Context, journal string, after uint64, entries ...[]byte) (uint64, error) {
	return send(n, func() (uint64, error) { return n.Store.Append(context.WithoutCancel(ctx), journal, after, entries...) })
}

// send makes a call after a while, and waits for it, or not long enough.
func send[T any](n *network, call func() (T, error)) (T, error) {
	n.mu.Lock()
	there, back := n.delay(), n.delay()
	patience := time.Hour
	if n.rnd.IntN(6) == 0 {
		patience = n.delay()
	}
	n.mu.Unlock()
	type answer struct {
		value T
		err   error
	}
	answers := make(chan answer, 1)
	go func() {
		time.Sleep(there)
		value, err := call()
		time.Sleep(back)
		answers <- answer{value, err}
	}()
	select {
	case a := <-answers:
		return a.value, a.err
	case <-time.After(patience):
		var none T
		return none, errLine
	}
}

// delay is mostly short, and sometimes longer than everything else takes.
func (n *network) delay() time.Duration {
	d := time.Duration(n.rnd.IntN(20)) * time.Millisecond
	if n.rnd.IntN(10) == 0 {
		d *= 30
	}
	return d
}

// world is a thread whose facts are due at a time, and what readers did.
type world struct {
	s       store.Store
	mu      sync.Mutex
	handled map[string]bool
	rung    int // alarms
}

const journal = "journal"

// write announces a fact and appends it, as long as others come between.
func (w *world) write(ctx context.Context, name string, due int64, dies bool) error {
	for {
		entries, err := store.ReadAll(ctx, w.s, journal, 0)
		if err != nil {
			return err
		}
		head := uint64(len(entries))
		if err := Announce(ctx, w.s, "flow", "thread", head+1, due); err != nil {
			return err
		}
		if dies {
			return nil
		}
		_, err = store.AppendOnce(ctx, w.s, journal, head, fmt.Appendf(nil, "%s %d", name, due))
		if !errors.Is(err, store.ErrConflict) {
			return err
		}
	}
}

// reader rings and looks, by its own clock.
type reader struct {
	name string
	skew time.Duration
}

func (r reader) now() int64 { return time.Now().Add(r.skew).UnixMicro() }

// look rings, does what hints say, handles the facts that are due, and
// settles. It returns whether there was a hint, or else an alarm. Only a hint
// makes it read.
func (w *world) look(ctx context.Context, r reader, nudge bool) (hint, alarm bool, err error) {
	rung, next, err := Ring(ctx, w.s, "flow", r.now(), 2)
	if err != nil {
		return false, false, err
	}
	w.mu.Lock()
	w.rung += rung
	w.mu.Unlock()
	page, _, _, err := Page(ctx, w.s, "flow", "", 9)
	if err != nil {
		return false, false, err
	}
	for _, h := range page {
		now := r.now()
		if h.Due > now {
			continue
		}
		entries, err := store.ReadAll(ctx, w.s, journal, 0)
		if err != nil {
			return false, false, err
		}
		head := uint64(len(entries))
		if head < h.Seq && nudge {
			_, err := store.AppendOnce(ctx, w.s, journal, head, fmt.Appendf(nil, "nudge-%s-%d 0", r.name, head))
			if err != nil && !errors.Is(err, store.ErrConflict) {
				return false, false, err
			}
			continue
		}
		if err := Settle(ctx, w.s, h, head, w.handle(entries, now), now); err != nil {
			return false, false, err
		}
	}
	return len(page) > 0, next != 0, nil
}

// handle marks the facts that are due and returns when the next one is.
func (w *world) handle(entries []store.Entry, now int64) (next int64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, e := range entries {
		var name string
		var due int64
		if _, err := fmt.Sscan(string(e.Data), &name, &due); err != nil {
			panic(err)
		}
		if due <= now {
			w.handled[name] = true
		} else if next == 0 || due < next {
			next = due
		}
	}
	return next
}

// Writers and readers of one thread, over a bad line and by clocks that differ,
// some writers dying before they append: no fact is overlooked, and in the end
// no hint and no alarm is left.
func TestNoWakeupIsLost(t *testing.T) {
	ran, rung := 0, 0
	for seed := range uint64(150) {
		t.Run(strconv.FormatUint(seed, 10), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { rung += noWakeupIsLost(t, seed) })
			ran++
		})
	}
	if ran > 50 && rung == 0 {
		t.Error("no alarm took part")
	}
}

func noWakeupIsLost(t *testing.T, seed uint64) (rung int) {
	ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
	defer cancel()
	rnd := rand.New(rand.NewPCG(seed, 1))
	inner := memstore.New()
	w := &world{s: &network{Store: inner, rnd: rand.New(rand.NewPCG(seed, 2))}, handled: map[string]bool{}}

	var writers, readers sync.WaitGroup
	var written atomic.Bool
	for i := range 3 {
		// Due at once, soon, or so late that it takes an alarm.
		pause, later := rnd.IntN(100), []int{0, rnd.IntN(2000), 10_000 + rnd.IntN(2000)}[rnd.IntN(3)]
		dies := rnd.IntN(4)
		writers.Go(func() {
			for j := range 3 {
				time.Sleep(time.Duration(pause) * time.Millisecond)
				due := time.Now().Add(time.Duration(later) * time.Millisecond).UnixMicro()
				if err := w.write(ctx, fmt.Sprintf("fact-%d-%d", i, j), due, j == dies); err != nil {
					t.Error(err)
				}
			}
		})
	}
	for i := range 2 {
		r := reader{name: fmt.Sprintf("reader-%d", i)}
		if rnd.IntN(4) == 0 {
			r.skew = time.Duration(rnd.IntN(30)-15) * time.Second
		}
		readers.Go(func() {
			idle := 0
			for round := range 10_000 {
				hint, alarm, err := w.look(ctx, r, round%8 == 7)
				if err != nil {
					t.Error(err)
					return
				}
				if idle++; hint || alarm || !written.Load() {
					idle = 0
				}
				// Longer than anything can still be on the line.
				if idle > 30 {
					return
				}
				if hint {
					time.Sleep(7 * time.Millisecond)
				} else {
					time.Sleep(71 * time.Millisecond)
				}
			}
			t.Error("there are still hints")
		})
	}
	writers.Wait()
	written.Store(true)
	readers.Wait()
	entries, err := store.ReadAll(ctx, inner, journal, 0)
	if err != nil || len(entries) == 0 {
		t.Fatalf("the journal has %d entries, %v", len(entries), err)
	}
	for _, e := range entries {
		var name string
		var due int64
		if _, err := fmt.Sscan(string(e.Data), &name, &due); err != nil {
			t.Fatal(err)
		}
		if due != 0 && !w.handled[name] {
			t.Errorf("%s at %d was never looked at", name, e.Seq)
		}
	}
	if left := cells(t, inner); len(left) != 0 {
		t.Errorf("left are %q", left)
	}
	return w.rung
}

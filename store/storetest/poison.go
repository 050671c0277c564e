package storetest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/perdure/perdure/store"
)

// Poison checks what a store does when its disk fails. Open is like an Opener, and
// also returns a function fail: from fail(true) to fail(false) every write and
// sync below the driver fails. A store starts healthy.
//
// While the disk fails, no write may succeed. After the first failure the handle
// is poisoned, even when the disk works again: the engine no longer knows which of
// its earlier bytes reached the disk, and a later sync that succeeds does not
// prove it. After closing and reopening, the store holds everything that was
// acknowledged and everything that was read since, holds each failed write as a
// whole or not at all, and accepts writes again.
func Poison(t *testing.T, open func(ctx context.Context, dir string) (s store.Store, fail func(on bool), err error)) {
	for _, first := range poisonWrites {
		t.Run(first.name, func(t *testing.T) { poison(t, open, first) })
	}
	t.Run("traffic", func(t *testing.T) { poisonTraffic(t, open) })
}

// Outage checks what a store does when its engine goes away and comes back. Open is
// as for [Poison], with a function fail that stops the engine and starts it again.
//
// While the engine is away, no write may succeed. When it is back, the same handle
// reads and writes again, without being reopened. The store then holds everything
// that was acknowledged, and each failed write as a whole or not at all.
func Outage(t *testing.T, open func(ctx context.Context, dir string) (s store.Store, fail func(on bool), err error)) {
	for _, first := range poisonWrites {
		t.Run(first.name, func(t *testing.T) { outage(t, open, first) })
	}
	t.Run("traffic", func(t *testing.T) { outageTraffic(t, open) })
}

type poisonOpener = func(ctx context.Context, dir string) (store.Store, func(on bool), error)

// patient is a store whose disk can be made to fail.
type patient struct {
	*kit
	openDisk poisonOpener
	s        store.Store
	fail     func(on bool)
}

func newPatient(tb testing.TB, open poisonOpener) (*patient, context.CancelFunc) {
	ctx, cancel := context.WithTimeout(tb.Context(), caseTime)
	p := &patient{kit: &kit{TB: tb, ctx: ctx, dir: tb.TempDir()}, openDisk: open}
	p.reopen("a new folder")
	return p, cancel
}

func (p *patient) reopen(when string) {
	p.Helper()
	var err error
	if p.s, p.fail, err = p.openDisk(p.ctx, p.dir); err != nil {
		p.Fatalf("the store does not open on %s: %v", when, err)
	}
}

// heal ends the failure, closes the poisoned handle and opens the store anew.
func (p *patient) heal() {
	p.Helper()
	p.fail(false)
	p.s.Close() // may fail: what it would write it no longer can
	p.reopen("a disk that works again")
}

// poisonWrite is a write that meets a failing disk. It knows the versions of
// the cells.
type poisonWrite struct {
	name  string
	write func(ctx context.Context, s store.Store, v map[string]store.Version) error
}

// poisonWrites are the writes of which each in turn is the first to fail. They
// write beside or behind what fill has put there.
var poisonWrites = []poisonWrite{
	{"append", func(ctx context.Context, s store.Store, _ map[string]store.Version) error {
		_, err := s.Append(ctx, "kept", 5, []byte("failed"))
		return err
	}},
	{"batch", func(ctx context.Context, s store.Store, _ map[string]store.Version) error {
		_, err := s.Append(ctx, "batched", 1, []byte("failed 1"), []byte("failed 2"), []byte("failed 3"))
		return err
	}},
	{"first append", func(ctx context.Context, s store.Store, _ map[string]store.Version) error {
		_, err := s.Append(ctx, "new", 0, []byte("failed"))
		return err
	}},
	{"put", func(ctx context.Context, s store.Store, v map[string]store.Version) error {
		_, err := s.Put(ctx, "replaced", []byte("failed"), v["replaced"])
		return err
	}},
	{"first put", func(ctx context.Context, s store.Store, _ map[string]store.Version) error {
		_, err := s.Put(ctx, "new", []byte("failed"), "")
		return err
	}},
	{"delete", func(ctx context.Context, s store.Store, v map[string]store.Version) error {
		return s.Delete(ctx, "deleted", v["deleted"])
	}},
	{"append with a cell", func(ctx context.Context, s store.Store, v map[string]store.Version) error {
		batcher := store.BatcherOf(s)
		if batcher == nil {
			return errors.ErrUnsupported
		}
		_, err := batcher.AppendBatch(ctx, store.Batch{Journal: "paired", After: 1, Entries: [][]byte{[]byte("failed")}, Cells: []store.Write{
			{Key: "paired", Value: []byte("failed"), Prev: v["paired"]}, {Key: "beside", Value: []byte("failed"), Optional: true},
		}})
		return err
	}},
	{"drop", func(ctx context.Context, s store.Store, _ map[string]store.Version) error {
		return s.Drop(ctx, "dropped")
	}},
}

// poisonJournals and poisonCells are what is acknowledged before the disk
// fails, and what the failed writes would add to it.
var poisonJournals = map[string]struct{ acked, failed []string }{
	"kept":    {[]string{"1", "2", "3", "4", "5"}, []string{"failed"}},
	"batched": {[]string{"1"}, []string{"failed 1", "failed 2", "failed 3"}},
	"dropped": {[]string{"1", "2"}, nil},
	"paired":  {[]string{"1"}, []string{"failed"}},
	"new":     {nil, []string{"failed"}},
}

var poisonCells = map[string][]string{ // "" stands for no cell
	"kept":     {"acked"},
	"replaced": {"acked", "failed"},
	"deleted":  {"acked", ""},
	"paired":   {"acked", "failed"},
	"beside":   {"", "failed"},
	"new":      {"", "failed"},
}

func (p *patient) fill() map[string]store.Version {
	p.Helper()
	p.append(p.s, "kept", 0, "1")
	p.append(p.s, "kept", 1, "2", "3", "4")
	p.append(p.s, "kept", 4, "5")
	p.append(p.s, "batched", 0, "1")
	p.append(p.s, "dropped", 0, "1", "2")
	versions := map[string]store.Version{}
	p.append(p.s, "paired", 0, "1")
	for _, key := range []string{"kept", "replaced", "deleted", "paired"} {
		versions[key] = p.put(p.s, key, "acked", "")
	}
	return versions
}

func poison(tb testing.TB, open poisonOpener, first poisonWrite) {
	p, cancel := newPatient(tb, open)
	defer cancel()
	versions := p.fill()
	p.fail(true)
	err := first.write(p.ctx, p.s, versions)
	if err == errors.ErrUnsupported {
		p.fail(false)
		p.s.Close()
		p.Skip("the store has no store.Batcher")
	}
	p.failed(first.name, err)
	// The disk works first, lest another write fails and poisons the handle.
	for _, disk := range []string{"works again", "fails again"} {
		p.fail(disk == "fails again")
		for _, w := range poisonWrites {
			if err := w.write(p.ctx, p.s, versions); err != errors.ErrUnsupported {
				p.poisoned(fmt.Sprintf("%s on a disk that %s", w.name, disk), err)
			}
		}
	}
	seen := p.seen()
	p.heal()
	p.check(seen)
	p.append(p.s, "after", 0, "written again")
	p.put(p.s, "after", "written again", "")
	if err := p.s.Close(); err != nil {
		p.Errorf("Close of the healed store: %v", err)
	}
	p.reopen("a disk that worked")
	p.check(seen)
	p.holds(p.s, "after", "written again")
	if got := p.value(p.s, "after"); got != "written again" {
		p.Errorf("the cell that was put after the disk worked again holds %q", got)
	}
	p.s.Close()
}

func outage(tb testing.TB, open poisonOpener, first poisonWrite) {
	p, cancel := newPatient(tb, open)
	defer cancel()
	versions := p.fill()
	p.fail(true)
	err := first.write(p.ctx, p.s, versions)
	if err != errors.ErrUnsupported {
		p.failed(first.name, err)
	}
	p.fail(false)
	p.comeBack()
	seen := p.seen()
	p.check(seen)
	p.append(p.s, "after", 0, "written again")
	p.s.Close()
	p.reopen("an engine that is back")
	p.check(seen)
	p.holds(p.s, "after", "written again")
	p.s.Close()
}

// comeBack demands that the handle can be used again.
func (p *patient) comeBack() {
	p.Helper()
	for {
		_, err := p.s.Put(p.ctx, "back", nil, "")
		if err == nil || errors.Is(err, store.ErrConflict) {
			return
		}
		select {
		case <-p.ctx.Done():
			p.Fatalf("the engine is back, and the store does not come back within %v: %v", caseTime, err)
		case <-time.After(20 * time.Millisecond):
		}
		if errors.Is(err, store.ErrPoisoned) {
			p.Fatalf("the engine is back, and the store does not come back: %v", err)
		}
	}
}

// failed demands an error of the write that met the failing disk.
func (p *patient) failed(what string, err error) {
	p.Helper()
	if err == nil {
		p.Fatalf("%s on a failing disk succeeded: a write that the disk did not take must not be acknowledged", what)
	}
	for _, definite := range []error{store.ErrConflict, store.ErrDropped, store.ErrTooLarge, store.ErrInvalid, store.ErrClosed, store.ErrCorrupt, store.ErrNotFound} {
		if errors.Is(err, definite) {
			p.Errorf("%s on a failing disk = %v, which says that nothing was written and that the disk is fine; want an error that leaves the outcome open", what, err)
		}
	}
}

// poisoned demands the error of writes after a failure.
func (p *patient) poisoned(what string, err error) {
	p.Helper()
	if !errors.Is(err, store.ErrPoisoned) {
		p.Errorf("after a failed write, %s = %v, want store.ErrPoisoned: a handle whose write or sync failed does not know what the disk holds, and might build on what is not there", what, err)
	}
}

// seen returns what the poisoned handle still reads. It need not read
// anything, but what it shows is there for good.
func (p *patient) seen() map[string][]string {
	p.Helper()
	seen := map[string][]string{}
	for name, j := range poisonJournals {
		entries, err := store.ReadAll(p.ctx, p.s, name, 0)
		for _, e := range entries {
			seen[name] = append(seen[name], string(e.Data))
		}
		if got := seen[name]; err == nil && (len(got) < len(j.acked) || !slices.Equal(got[:len(j.acked)], j.acked)) {
			p.Errorf("the poisoned handle reads %s of journal %q without an error, want the acknowledged %s or an error", brief(got), name, brief(j.acked))
		}
	}
	return seen
}

// check demands that what was acknowledged or seen is there, and what failed
// is there as a whole or not at all.
func (p *patient) check(seen map[string][]string) {
	p.Helper()
	for name, j := range poisonJournals {
		if name == "dropped" && errors.Is(p.readErr(p.s, name), store.ErrDropped) {
			continue
		}
		got := p.read(p.s, name)
		if whole := slices.Concat(j.acked, j.failed); !slices.Equal(got, j.acked) && !slices.Equal(got, whole) {
			p.Errorf("after a failed write and reopening, journal %q holds %s, want the acknowledged %s, followed by all of %s or nothing", name, brief(got), brief(j.acked), brief(j.failed))
		}
		if saw := seen[name]; len(got) < len(saw) || !slices.Equal(got[:len(saw)], saw) {
			p.Errorf("after a failed write and reopening, journal %q holds %s, but the poisoned handle had shown %s: what a reader saw must not vanish", name, brief(got), brief(saw))
		}
	}
	if entries, cell, beside := len(p.read(p.s, "paired")), p.value(p.s, "paired") == "failed", len(p.keys(p.s, "beside", "")); (entries == 2) != cell || cell != (beside == 1) {
		p.Errorf("after a failed batch and reopening, journal \"paired\" has %d entries, its cell is written: %t, and %d cells beside it: a batch is there as a whole or not at all", entries, cell, beside)
	}
	for key, want := range poisonCells {
		cell, err := p.s.Get(p.ctx, key)
		if got := string(cell.Value); err != nil && !errors.Is(err, store.ErrNotFound) || !slices.Contains(want, got) {
			p.Errorf("after a failed write and reopening, cell %q holds %q (error %v), want one of %q, where \"\" means no cell", key, got, err, want)
		}
	}
}

const writers = 6 // of traffic

func writerJournal(w int) string { return fmt.Sprintf("writer-%d", w) }

// poisonTraffic lets the disk fail under several writers at once, whose
// writes an engine may have put into one sync.
func poisonTraffic(tb testing.TB, open poisonOpener) {
	p, cancel := newPatient(tb, open)
	defer cancel()
	acked, cut := p.traffic()
	p.fail(false)
	for w := range writers {
		_, err := p.s.Append(p.ctx, writerJournal(w), uint64(len(acked[w])), []byte("too late"))
		p.poisoned("an append on a disk that works again", err)
	}
	p.heal()
	defer p.s.Close()
	p.checkTraffic(acked, cut)
}

// outageTraffic stops the engine under several writers at once.
func outageTraffic(tb testing.TB, open poisonOpener) {
	p, cancel := newPatient(tb, open)
	defer cancel()
	acked, cut := p.traffic()
	p.fail(false)
	p.comeBack()
	defer p.s.Close()
	p.checkTraffic(acked, cut)
}

// traffic lets several writers append until the disk fails, and returns what was
// acknowledged and what each tried last.
func (p *patient) traffic() (acked, cut [writers][]string) {
	p.Helper()
	const enough = 20
	var failing atomic.Bool
	var ready, done sync.WaitGroup
	errs := [writers]error{}
	ready.Add(writers)
	for w := range writers {
		done.Go(func() {
			for n := 1; ; n++ {
				if n == enough {
					ready.Done()
				}
				batch, data := []string{}, [][]byte{}
				for i := range 1 + n%3 {
					e := fmt.Sprintf("writer %d append %d entry %d %s", w, n, i, strings.Repeat("x", 50*i))
					batch, data = append(batch, e), append(data, []byte(e))
				}
				late := failing.Load()
				err := sure(func() error {
					_, err := p.s.Append(p.ctx, writerJournal(w), uint64(len(acked[w])), data...)
					return err
				})
				if err == nil && !late {
					acked[w] = append(acked[w], batch...)
					continue
				}
				cut[w], errs[w] = batch, err
				if n < enough {
					p.Errorf("append %d of writer %d, before the disk failed: %v", n, w+1, err)
					ready.Done()
				}
				return
			}
		})
	}
	ready.Wait()
	p.fail(true)
	failing.Store(true)
	done.Wait()
	for w, err := range errs {
		p.failed(fmt.Sprintf("append of writer %d of %d", w+1, writers), err)
	}
	return acked, cut
}

// checkTraffic demands that what was acknowledged is there, and that writing goes on.
func (p *patient) checkTraffic(acked, cut [writers][]string) {
	p.Helper()
	for w := range writers {
		got := p.read(p.s, writerJournal(w))
		if whole := slices.Concat(acked[w], cut[w]); !slices.Equal(got, acked[w]) && !slices.Equal(got, whole) {
			p.Errorf("journal %q has %d entries, want the %d acknowledged before the disk failed, followed by all %d of the failed append or none; it ends with %.80q", writerJournal(w), len(got), len(acked[w]), len(cut[w]), got[max(0, len(got)-2):])
		}
		p.append(p.s, writerJournal(w), uint64(len(got)), "written again")
	}
}

package retain

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/perdure/perdure/internal/clock"
	"github.com/perdure/perdure/internal/duty"
	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/threads"
	"github.com/perdure/perdure/store"
)

// StateKey is the key of the cell that says who looks, and since when.
const StateKey = "perdure/retention"

// ReportPrefix begins the keys of the reports, the part of a tenant follows.
const ReportPrefix = "retention/"

// State is the content of that cell.
type State struct {
	Holder string  `json:"holder,omitempty"` // the worker that looks, "" if none does
	Beat   uint64  `json:"beat"`             // counts the writes
	Begun  int64   `json:"begun"`            // the last look
	Ended  int64   `json:"ended,omitempty"`  // 0 while it goes on
	Vault  int64   `json:"vault,omitempty"`  // when a look at the archive last began
	Idle   int64   `json:"idle,omitempty"`   // how long the last look took, in microseconds, if it removed nothing
	Page   []going `json:"page,omitempty"`   // the threads to remove next
}

// going is a thread that is about to be removed.
type going struct {
	Tenant string `json:"tenant,omitempty"`
	ID     string `json:"id"`
}

// Report is what is known about the threads of a tenant.
type Report struct {
	// Of the last look that removed something.
	At       int64 `json:"at,omitempty"`
	Archived int   `json:"archived,omitempty"`
	Erased   int   `json:"erased,omitempty"`
	Expired  int   `json:"expired,omitempty"` // erased from the archive

	// Of the last look.
	Skipped map[string]int `json:"skipped,omitempty"` // by reason
	Errors  []Problem      `json:"errors,omitempty"`  // the first ones

	Total [3]int64 `json:"total"` // archived, erased, expired since ever
}

// Problem says why a thread could not be removed.
type Problem struct {
	Thread string `json:"thread,omitempty"`
	Error  string `json:"error"`
}

// The bounds of cells, and of what a look tries again.
const (
	pageSize   = 25
	mostPage   = 2000
	mostPinned = 1000
	mostErrors = 20
	mostText   = 300
)

// ReadState returns the state of retention on a store, the zero value if no worker has
// looked yet.
func ReadState(ctx context.Context, s store.Store) (st State, err error) {
	return st, read(ctx, s, StateKey, &st)
}

// ReadReport returns the report about a tenant.
func ReadReport(ctx context.Context, t *threads.Tenant) (r Report, err error) {
	return r, read(ctx, t.All.Store, ReportPrefix+t.Part, &r)
}

func read(ctx context.Context, s store.Store, key string, to any) error {
	cell, err := store.Derived(s).Get(ctx, key)
	if errors.Is(err, store.ErrNotFound) {
		return nil
	}
	if err == nil {
		_ = json.Unmarshal(cell.Value, to) // the next look writes it anew
	}
	return err
}

const again = 5 * time.Second // the pause after an error

// Work looks at the threads of all tenants, and removes what is to be removed, until
// the context ends. Of the workers of a store one does so at a time.
func (k *Keeper) Work(ctx context.Context, lease time.Duration) {
	every := max(k.Rules.interval(false), 0)
	if archive := k.Rules.interval(true); every == 0 || archive > 0 && archive < every {
		every = archive
	}
	if every == 0 {
		return // everything is kept forever
	}
	ctx = store.Patient(ctx)
	w := &worker{Keeper: k, lease: lease, every: every, id: threads.NewRunID(), seen: duty.Sights{}, known: map[string]*threads.Tenant{}}
	for {
		wait, err := w.turn(ctx)
		if err != nil && ctx.Err() == nil {
			if threads.IsUnusable(err) {
				return
			}
			if !errors.Is(err, duty.ErrLost) {
				k.Threads.Warn("removing threads whose time has come", err)
			}
			wait = again
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(max(wait, time.Millisecond)):
		}
	}
}

// worker looks when it is its turn.
type worker struct {
	*Keeper
	lease, every time.Duration
	id           string
	seen         duty.Sights
	known        map[string]*threads.Tenant // by part
	next         time.Time                  // when the rate allows the next thread

	mu    sync.Mutex
	state State
}

// turn looks if it is time and nobody else does, and returns when to come again.
func (w *worker) turn(ctx context.Context) (time.Duration, error) {
	cell, err := w.Threads.Store.Get(ctx, StateKey)
	if errors.Is(err, store.ErrNotFound) {
		cell, err = store.Cell{Key: StateKey}, nil
	}
	if err != nil {
		return 0, err
	}
	st := State{}
	_ = json.Unmarshal(cell.Value, &st) // a damaged one is written anew
	if st.Holder != "" {
		if left := w.seen.Wait(cell, w.lease); left > 0 {
			return left, nil
		}
	} else if left := clock.Until(st.Begun) + w.pause(st); st.Ended > 0 && left > 0 && left <= w.pause(st) { // a clock may have been wrong
		return left, nil
	}
	clear(w.seen)
	st.Holder, st.Begun, st.Ended = w.id, clock.Micros(), 0
	w.mu.Lock()
	w.state = st
	w.mu.Unlock()
	h := &duty.Hold{Store: w.Threads.Store, Key: StateKey, Version: cell.Version, Lease: w.lease, Encode: w.encode}
	if err := h.Save(ctx); err != nil {
		return 0, err
	}
	err = h.During(ctx, func(ctx context.Context) error { return w.sweepAll(ctx, h) })
	if errors.Is(err, duty.ErrLost) {
		return 0, err
	}
	w.change(func(st *State) {
		st.Holder = ""
		if err == nil {
			st.Ended = clock.Micros()
		}
	})
	// So that nobody has to wait for the lease.
	done, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
	defer cancel()
	return clock.Until(st.Begun) + w.pause(w.state), errors.Join(err, h.Save(done))
}

// pause returns the time from one look to the next: at least ten times what a look takes
// that finds nothing, so that many threads which stay do not keep the store busy.
func (w *worker) pause(st State) time.Duration {
	return max(w.every, 10*time.Duration(st.Idle)*time.Microsecond)
}

func (w *worker) change(f func(*State)) {
	w.mu.Lock()
	defer w.mu.Unlock()
	f(&w.state)
}

// encode returns the content of the cell.
func (w *worker) encode() (value []byte, err error) {
	w.change(func(st *State) {
		st.Beat++
		value, err = json.Marshal(st)
	})
	return value, err
}

// sweepAll completes what another worker has left, and removes what is to be removed.
func (w *worker) sweepAll(ctx context.Context, h *duty.Hold) error {
	left, archive, removed := []going(nil), false, 0
	begun := time.Now()
	w.change(func(st *State) {
		left = slices.Clone(st.Page)
		if every := w.Rules.interval(true); every > 0 && elapsed(st.Vault, every, st.Begun) {
			archive, st.Vault = true, st.Begun
		}
	})
	for _, g := range left {
		if err := w.complete(ctx, g); err != nil {
			return fmt.Errorf("completing the removal of thread %s: %w", g.ID, err)
		}
	}
	if len(left) > 0 {
		if err := w.page(ctx, h, nil); err != nil {
			return err
		}
	}
	all, err := w.Threads.Tenants(ctx, w.known)
	if err != nil {
		return err
	}
	for _, t := range all {
		v := &visit{worker: w, hold: h, tenant: t, now: clock.Micros(), report: Report{Skipped: map[string]int{}}}
		err := v.visit(ctx, archive)
		if reported := v.write(ctx, err == nil); err == nil {
			err = reported
		}
		if err != nil {
			return err
		}
		removed += v.gone() + v.report.Expired
	}
	w.change(func(st *State) {
		if st.Idle = 0; removed == 0 {
			st.Idle = time.Since(begun).Microseconds()
		}
	})
	return nil
}

// page writes down which threads are about to be removed.
func (w *worker) page(ctx context.Context, h *duty.Hold, page []going) error {
	w.change(func(st *State) { st.Page = page[:min(len(page), mostPage)] })
	return h.Save(ctx)
}

// pace waits until the rate allows another thread.
func (w *worker) pace(ctx context.Context) error {
	if wait := time.Until(w.next); wait > 0 { // see bell.Bell for timers that are over at once
		select {
		case <-ctx.Done():
		case <-time.After(wait):
		}
	}
	w.next = time.Now().Add(time.Second / time.Duration(max(1, w.Rate)))
	return ctx.Err()
}

// visit is a look at the threads of one tenant.
type visit struct {
	*worker
	hold   *duty.Hold
	tenant *threads.Tenant
	now    int64
	report Report

	batch   []*Item
	pinned  []string // threads to look at again once others are gone
	counted [3]int   // those of the report that are in the cell
}

func (v *visit) visit(ctx context.Context, archive bool) error {
	for _, status := range statuses {
		for c, err := range v.candidates(ctx, v.tenant, status, v.now, "") {
			if err != nil {
				return err
			}
			if c.item.Skipped != "" {
				v.report.Skipped[c.item.Skipped]++
				continue
			}
			if err := v.consider(ctx, c.item.ID); err != nil {
				return err
			}
		}
	}
	if err := v.flush(ctx); err != nil {
		return err
	}
	for gone := -1; len(v.pinned) > 0 && gone != v.gone(); { // as long as something is removed
		gone = v.gone()
		ids := v.pinned
		v.pinned = nil
		v.report.Skipped[Pinned] -= len(ids)
		for _, id := range ids {
			if err := v.consider(ctx, id); err != nil {
				return err
			}
		}
		if err := v.flush(ctx); err != nil {
			return err
		}
	}
	if !archive {
		return nil
	}
	return v.expire(ctx)
}

func (v *visit) gone() int { return v.report.Archived + v.report.Erased }

// expire erases threads from the archive, those that were created last first, since
// others may depend on them.
func (v *visit) expire(ctx context.Context) error {
	var due []*Item
	for item, err := range v.expired(ctx, v.tenant, v.now, "") {
		if err != nil {
			return err
		}
		due = append(due, item)
	}
	slices.Reverse(due)
	for _, item := range due {
		item.Skipped, item.By = "", nil // what it depended on may be gone
		if err := v.add(ctx, item); err != nil {
			return err
		}
	}
	return v.flush(ctx)
}

// consider looks at a thread, and removes it with the next page if it is to go.
func (v *visit) consider(ctx context.Context, id string) error {
	item, err := v.examine(ctx, v.tenant, id, v.now)
	if err != nil {
		return v.failed(ctx, id, err)
	}
	if item == nil {
		return nil
	}
	if item.Skipped != "" {
		v.skipped(item)
		return nil
	}
	return v.add(ctx, item)
}

// add adds a thread to the page, and removes those of a full one.
func (v *visit) add(ctx context.Context, item *Item) error {
	if v.batch = append(v.batch, item); len(v.batch) < pageSize {
		return nil
	}
	return v.flush(ctx)
}

// flush removes the threads of the page.
func (v *visit) flush(ctx context.Context) error {
	if len(v.batch) == 0 {
		return nil
	}
	var page []going
	for _, item := range v.batch {
		for _, m := range item.members {
			page = append(page, going{v.tenant.Name, m.id})
		}
	}
	if err := v.page(ctx, v.hold, page); err != nil {
		return err
	}
	for _, item := range v.batch {
		n, err := v.remove(ctx, v.tenant, item, v.pace)
		switch item.Action {
		case ToArchive:
			v.report.Archived += n
		case ToErase:
			v.report.Erased += n
		case ToExpire:
			v.report.Expired += n
		}
		if err != nil {
			if err := v.failed(ctx, item.ID, err); err != nil {
				return err
			}
			// Others may depend on what was begun: it comes first.
			for _, m := range item.members {
				if err := v.complete(ctx, going{v.tenant.Name, m.id}); err != nil {
					return fmt.Errorf("completing the removal of thread %s: %w", m.id, err)
				}
			}
			continue
		}
		if item.Skipped != "" {
			v.skipped(item)
		}
	}
	v.batch = nil
	if err := v.write(ctx, false); err != nil {
		return err
	}
	return v.page(ctx, v.hold, nil)
}

func (v *visit) skipped(item *Item) {
	v.report.Skipped[item.Skipped]++
	if item.Skipped == Pinned && item.Action != ToExpire && len(v.pinned) < mostPinned {
		v.pinned = append(v.pinned, item.ID)
	}
}

// failed counts a thread that could not be removed. It returns an error that is not
// about the thread.
func (v *visit) failed(ctx context.Context, id string, err error) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if duty.Passes(err) || threads.IsUnusable(err) || errors.Is(err, duty.ErrLost) {
		return err
	}
	v.report.Skipped[Failed]++
	if len(v.report.Errors) < mostErrors {
		v.report.Errors = append(v.report.Errors, Problem{id, fault.Clip(err.Error(), mostText)})
	}
	return nil
}

// write writes the report if it says something new: while the look goes on, only what
// was removed.
func (v *visit) write(ctx context.Context, ended bool) error {
	r := &v.report
	maps.DeleteFunc(r.Skipped, func(_ string, n int) bool { return n <= 0 })
	removed := [3]int{r.Archived, r.Erased, r.Expired}
	if ended && removed != [3]int{} {
		v.Threads.Log.Info("removed threads whose time had come", "tenant", v.tenant.Name, "archived", r.Archived, "erased", r.Erased, "expired", r.Expired)
	}
	_, err := store.Update(ctx, store.Derived(v.Threads.Store), ReportPrefix+v.tenant.Part, func(old store.Cell) ([]byte, error) {
		var now Report
		_ = json.Unmarshal(old.Value, &now)
		if removed == v.counted && (!ended || maps.Equal(now.Skipped, r.Skipped) && slices.Equal(now.Errors, r.Errors)) {
			return nil, threads.ErrNothing
		}
		if ended {
			now.Skipped, now.Errors = r.Skipped, r.Errors
		}
		if removed != v.counted {
			now.At, now.Archived, now.Erased, now.Expired = clock.Micros(), r.Archived, r.Erased, r.Expired
			for i, n := range removed {
				now.Total[i] += int64(n - v.counted[i])
			}
		}
		return json.Marshal(now)
	})
	if err == nil {
		v.counted = removed
	}
	if errors.Is(err, threads.ErrNothing) {
		return nil
	}
	return err
}

package due_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/perdure/perdure/internal/due"
	"github.com/perdure/perdure/internal/explore"
	"github.com/perdure/perdure/store"
)

// The explored tests run the protocol on one thread in every order of store
// calls. A fact in the journal is a time at which it is due.
const (
	flow, thread, journal = "flow", "thread", "journal"

	morning = 1_700_000_000_000_000
	soon    = morning + 5_000_000 // near enough for a hint
	evening = morning + 36_000_000_000
)

// play is one execution.
type play struct {
	w       *explore.World
	flaw    func(store.Store) store.Store
	handled map[int64]bool // facts that a reader has met when they were due
}

// write announces a fact and appends it.
func write(at int64) func(context.Context, store.Store) error { return writeFor(1, at) }

// writeFor announces for a time.
func writeFor(when, at int64) func(context.Context, store.Store) error {
	return func(ctx context.Context, s store.Store) error {
		for {
			facts, err := store.ReadAll(ctx, s, journal, 0)
			if err != nil {
				return err
			}
			if err := due.Announce(ctx, s, flow, thread, uint64(len(facts))+1, when); err != nil {
				return err
			}
			_, err = store.AppendOnce(ctx, s, journal, uint64(len(facts)), fmt.Append(nil, at))
			if !errors.Is(err, store.ErrConflict) {
				return err
			}
		}
	}
}

// ring rings the alarms by a clock.
func ring(now int64) func(context.Context, store.Store) error {
	return func(ctx context.Context, s store.Store) error {
		_, _, err := due.Ring(ctx, s, flow, now, 9)
		return err
	}
}

// look reads the thread for its hint, if there is one, and settles it, by a
// clock. Nudge says to append something where the hint is ahead.
func (p *play) look(ctx context.Context, s store.Store, now int64, nudge bool) (found bool, err error) {
	hints, _, _, err := due.Page(ctx, s, flow, "", 9)
	if err != nil || len(hints) == 0 {
		return false, err
	}
	h := hints[0]
	if h.Due > now {
		return false, nil
	}
	facts, err := store.ReadAll(ctx, s, journal, 0)
	if err != nil {
		return true, err
	}
	head := uint64(len(facts))
	if nudge && head < h.Seq {
		_, err := store.AppendOnce(ctx, s, journal, head, []byte("1"))
		return true, err
	}
	var next int64
	for _, f := range facts {
		var at int64
		if _, err := fmt.Sscan(string(f.Data), &at); err != nil {
			return true, err
		}
		if at <= now {
			p.handled[at] = true
		} else if next == 0 || at < next {
			next = at
		}
	}
	return true, due.Settle(ctx, s, h, head, next, now)
}

// reader looks a few times, by a clock.
func (p *play) reader(now int64, looks int) func(context.Context, store.Store) error {
	return func(ctx context.Context, s store.Store) error {
		for range looks {
			if _, err := p.look(ctx, s, now, false); err != nil {
				return err
			}
		}
		return nil
	}
}

// judge does at the end what restarted workers do: ring and look in the
// morning, soon after, and in the evening. Each fact must be met when it is
// due, and then nothing is left.
func (p *play) judge(ctx context.Context, s store.Store) error {
	for _, now := range []int64{morning, soon, evening} {
		if err := ring(now)(ctx, s); err != nil {
			return err
		}
		for found, looks := true, 0; found; looks++ {
			var err error
			if found, err = p.look(ctx, s, now, true); err != nil {
				return err
			}
			if looks > 9 {
				return errors.New("the looks do not end")
			}
		}
		facts, err := store.ReadAll(ctx, s, journal, 0)
		if err != nil {
			return err
		}
		for _, f := range facts {
			var at int64
			if _, err := fmt.Sscan(string(f.Data), &at); err != nil {
				return err
			}
			if at <= now && !p.handled[at] {
				return fmt.Errorf("the fact that is due at %d is lost at %d", at, now)
			}
		}
	}
	for cell, err := range s.List(ctx, "", "") {
		if err != nil {
			return err
		}
		return fmt.Errorf("cell %s is left", cell.Key)
	}
	return nil
}

// plot declares the actors of an execution.
type plot func(p *play)

// setup makes a plot an exploration, of which a flaw may change the stores.
func (pl plot) setup(flaw func(store.Store) store.Store) func(*explore.World) {
	return func(w *explore.World) {
		p := &play{w: w, flaw: flaw, handled: map[int64]bool{}}
		pl(p)
		w.Check(func(ctx context.Context, s store.Store) error {
			return errors.Join(w.Settled(), p.judge(ctx, s))
		})
	}
}

func (p *play) actor(name string, fn func(context.Context, store.Store) error) {
	p.w.Actor(name, func(ctx context.Context, s store.Store) error {
		if p.flaw != nil {
			s = p.flaw(s)
		}
		return fn(ctx, s)
	})
}

// asleep brings the thread as far as an alarm for the evening.
func (p *play) asleep() {
	ctx, s := context.Background(), p.w.Store()
	if err := write(evening)(ctx, s); err != nil {
		panic(err)
	}
	if _, err := p.look(ctx, s, morning, false); err != nil {
		panic(err)
	}
}

// writing: two facts are written, one of them far ahead, while a reader looks
// and another rings.
func (p *play) writing() {
	p.actor("writer of a fact", write(morning))
	p.actor("writer of a timer", write(evening))
	p.actor("reader", p.reader(morning, 1))
	p.actor("ringer", ring(evening))
}

// waking: one fact is written while an alarm rings and a reader looks, for
// whom it does not ring yet.
func (p *play) waking() {
	p.asleep()
	p.actor("writer", write(morning))
	p.actor("reader", p.reader(morning, 2))
	p.actor("ringer", ring(evening))
}

// meeting: the alarm of a thread that is due anyway rings while readers by
// both clocks look.
func (p *play) meeting() {
	p.asleep()
	if err := due.Announce(context.Background(), p.w.Store(), flow, thread, 1, 1); err != nil {
		panic(err)
	}
	p.actor("slow reader", p.reader(morning, 2))
	p.actor("reader", p.reader(evening, 1))
	p.actor("ringer", ring(evening))
}

// ringing: two ring the same alarm, of a thread that is due anyway, and a
// reader looks for whom it does not ring yet.
func (p *play) ringing() {
	p.asleep()
	if err := due.Announce(context.Background(), p.w.Store(), flow, thread, 1, 1); err != nil {
		panic(err)
	}
	p.actor("slow reader", p.reader(morning, 1))
	p.actor("ringer", ring(evening))
	p.actor("other ringer", ring(evening))
}

// overtaking: a writer announces what another one has gone past, and dies, while
// a reader looks.
func (p *play) overtaking() {
	p.actor("writer of two", func(ctx context.Context, s store.Store) error {
		if err := write(morning)(ctx, s); err != nil {
			return err
		}
		return write(morning-1)(ctx, s)
	})
	p.actor("writer that dies", func(ctx context.Context, s store.Store) error {
		facts, err := store.ReadAll(ctx, s, journal, 0)
		if err != nil {
			return err
		}
		return due.Announce(ctx, s, flow, thread, uint64(len(facts))+1, 1)
	})
	p.actor("reader", p.reader(morning, 1))
}

// near: a fact for now and one for soon are announced for their times, while a
// reader looks.
func (p *play) near() {
	p.actor("writer for now", writeFor(morning, morning))
	p.actor("writer for soon", writeFor(soon, soon))
	p.actor("reader", p.reader(morning, 2))
}

func TestExploredTimersAreNeverLost(t *testing.T) {
	for _, tc := range []struct {
		name string
		plot plot
		cfg  explore.Config
		long bool
	}{
		{"writing", (*play).writing, explore.Config{}, false},
		{"overtaking", (*play).overtaking, explore.Config{}, false},
		{"near", (*play).near, explore.Config{}, false},
		{"writing, a crash", (*play).writing, explore.Config{Crashes: 1}, true},
		{"writing, a fault", (*play).writing, explore.Config{Unknowns: 1}, true},
		{"waking, a crash", (*play).waking, explore.Config{Crashes: 1}, false},
		{"waking, crashes", (*play).waking, explore.Config{Crashes: 2}, true},
		{"waking, a fault", (*play).waking, explore.Config{Unknowns: 1}, true},
		{"meeting", (*play).meeting, explore.Config{}, false},
		{"meeting, a crash", (*play).meeting, explore.Config{Crashes: 1}, true},
		{"meeting, a fault", (*play).meeting, explore.Config{Unknowns: 1}, true},
		{"meeting, a conflict", (*play).meeting, explore.Config{Conflicts: 1}, true},
		{"ringing", (*play).ringing, explore.Config{}, false},
		{"ringing, a crash", (*play).ringing, explore.Config{Crashes: 1}, true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if tc.long && os.Getenv("PERDURE_TORTURE") == "" {
				t.Skip("explored with PERDURE_TORTURE=1 only")
			}
			explore.Run(t, tc.cfg, tc.plot.setup(nil))
		})
	}
}

// lazy takes the writing of what is there already for done.
type lazy struct {
	store.Store
	prefix string
}

func (s lazy) Put(ctx context.Context, key string, data []byte, prev store.Version) (store.Version, error) {
	if strings.HasPrefix(key, s.prefix) && prev != "" {
		if cell, err := s.Get(ctx, key); err == nil && bytes.Equal(cell.Value, data) {
			return cell.Version, nil
		}
	}
	return s.Store.Put(ctx, key, data, prev)
}

// rash deletes a cell whatever its version is.
type rash struct {
	store.Store
	prefix string
}

func (s rash) Delete(ctx context.Context, key string, prev store.Version) error {
	if strings.HasPrefix(key, s.prefix) {
		if cell, err := s.Get(ctx, key); err == nil {
			prev = cell.Version
		}
	}
	return s.Store.Delete(ctx, key, prev)
}

// late writes what takes the place of another cell only when that is deleted.
type late struct {
	store.Store
	prefix string
	put    func() error
}

func (s *late) Put(ctx context.Context, key string, data []byte, prev store.Version) (store.Version, error) {
	if !strings.HasPrefix(key, s.prefix) {
		return s.Store.Put(ctx, key, data, prev)
	}
	s.put = func() error {
		_, err := s.Store.Put(ctx, key, data, prev)
		return err
	}
	return "later", nil
}

func (s *late) Delete(ctx context.Context, key string, prev store.Version) error {
	err := s.Store.Delete(ctx, key, prev)
	if s.put != nil {
		err, s.put = errors.Join(err, s.put()), nil
	}
	return err
}

// Each of these stores lacks a guard that the protocol rests on. That all are
// found shows that the exploration can fail.
func TestExploredFlawsAreFound(t *testing.T) {
	for _, tc := range []struct {
		name string
		plot plot
		flaw func(store.Store) store.Store
	}{
		{"Ring does not write a hint that is there", (*play).meeting, func(s store.Store) store.Store { return lazy{s, "due/"} }},
		{"Settle does not set an alarm that is there", (*play).meeting, func(s store.Store) store.Store { return lazy{s, "alarm/"} }},
		{"Settle removes any hint", (*play).waking, func(s store.Store) store.Store { return rash{s, "due/"} }},
		{"Ring removes any alarm", (*play).meeting, func(s store.Store) store.Store { return rash{s, "alarm/"} }},
		{"Settle sets the alarm last", (*play).writing, func(s store.Store) store.Store { return &late{Store: s, prefix: "alarm/"} }},
		{"Ring makes the hint last", (*play).asleepAndRung, func(s store.Store) store.Store { return &late{Store: s, prefix: "due/"} }},
	} {
		t.Run(tc.name, func(t *testing.T) {
			r := explore.Explore(t, explore.Config{Crashes: 1}, tc.plot.setup(tc.flaw))
			switch {
			case r.Failure == nil:
				t.Errorf("nothing was found in %v", r)
			case !strings.Contains(r.Failure.Err.Error(), "is lost"):
				t.Errorf("the failure is another: %v", r.Failure)
			}
		})
	}
}

// asleepAndRung: an alarm rings, and nothing else.
func (p *play) asleepAndRung() {
	p.asleep()
	p.actor("ringer", ring(evening))
}

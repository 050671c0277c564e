package due

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/perdure/perdure/store"
)

// Announce records that the thread will be due at the given time, in
// microseconds since 1970, because of a fact that is about to get sequence seq
// in its journal. If there is a hint, it gets the higher of the two sequences
// and the earlier of the two times. Nothing is written if nothing changes.
//
// Merging is idempotent, so Announce retries after conflicts and uncertain
// outcomes until ctx ends. After an error the hint may or may not be written,
// and the fact must not be appended.
func Announce(ctx context.Context, s store.Store, flow, thread string, seq uint64, due int64) error {
	_, err := announce(ctx, s, flow, thread, value{Seq: seq, Due: due}, false)
	return err
}

// announce implements Announce. With afresh it writes the hint even if nothing
// changes, so that no reader that saw it before can settle it. It reports
// whether the hint is now as it should be: one that cannot be read is left
// alone, and one that the store finds damaged is rewritten.
func announce(ctx context.Context, s store.Store, flow, thread string, given value, afresh bool) (ok bool, err error) {
	err = retry(ctx, func() error {
		w, readable, err := announcement(ctx, s, flow, thread, given, afresh)
		if ok = readable; err == nil && w.Key != "" {
			_, err = s.Put(ctx, w.Key, w.Value, w.Prev)
		}
		return err
	})
	if err != nil {
		return false, fmt.Errorf("due: announce %q at %d: %w", thread, given.Seq, err)
	}
	return ok, nil
}

// Announcement returns the write that Announce would make, for callers that
// make it together with the fact, or a write without a key if there is nothing
// to write. A caller that finds the hint changed in the meantime asks for
// another. With unseen it assumes that there is no hint yet.
func Announcement(ctx context.Context, s store.Store, flow, thread string, seq uint64, due int64, unseen bool) (w store.Write, err error) {
	given := value{Seq: seq, Due: due}
	if key, keyErr := keyOf(flow, thread); unseen && keyErr == nil && seq > 0 {
		return store.Write{Key: key, Value: given.encode()}, nil
	}
	err = retry(ctx, func() error {
		w, _, err = announcement(ctx, s, flow, thread, given, false)
		return err
	})
	if err != nil {
		return w, fmt.Errorf("due: announce %q at %d: %w", thread, seq, err)
	}
	return w, nil
}

// announcement returns the write that merges given into the hint, without a key
// if there is nothing to write, and whether the hint can be read.
func announcement(ctx context.Context, s store.Store, flow, thread string, given value, afresh bool) (w store.Write, ok bool, err error) {
	key, err := keyOf(flow, thread)
	if err != nil {
		return w, false, err
	}
	if given.Seq == 0 {
		return w, false, fmt.Errorf("%w: sequences begin at 1", store.ErrInvalid)
	}
	old, err := s.Get(ctx, key)
	merged := given
	if errors.Is(err, store.ErrCorrupt) {
		if old, err = store.Derived(s).Get(ctx, key); err != nil {
			return w, false, err
		}
		merged.Due = min(given.Due, 1) // the damaged hint may have been due by now
	} else if err == nil {
		h := parse(flow, old)
		if h.Err != nil {
			return w, false, nil // every reader takes it as due now, and none removes it
		}
		merged = value{Seq: max(h.Seq, given.Seq), Due: min(h.Due, given.Due)}
		if !afresh && merged == (value{Seq: h.Seq, Due: h.Due}) {
			return w, true, nil
		}
	} else if !errors.Is(err, store.ErrNotFound) {
		return w, false, err
	}
	return store.Write{Key: key, Value: merged.encode(), Prev: old.Version}, true, nil
}

// Removal returns the write that removes the hint of a thread whose journal is
// about to reach sequence head, for a writer that knows that nothing will be
// due then or later. The write has no key if there is no hint, or one that must
// stay.
func Removal(ctx context.Context, s store.Store, flow, thread string, head uint64) (store.Write, error) {
	h, ok, err := Get(ctx, s, flow, thread)
	if err != nil || !ok || h.Err != nil || h.Seq > head {
		return store.Write{}, err
	}
	key, err := keyOf(flow, thread)
	return store.Write{Key: key, Prev: h.Version, Remove: true, Quiet: true}, err
}

// Settle is called by a reader that has folded the thread's journal up to
// sequence head and found, at time now, that the thread is next due at time
// next, or not at all if next is 0. Times are in microseconds since 1970. It
// postpones the hint to next or, if that is more than Near away, sets an alarm
// and removes the hint; if next is 0, it only removes the hint.
//
// It leaves the hint alone, and returns nil, if the journal has not reached the
// hint's sequence, if the hint was written since h was read, or if it cannot be
// read. After an error the hint may or may not be settled.
func Settle(ctx context.Context, s store.Store, h Hint, head uint64, next, now int64) error {
	if h.Err != nil || head < h.Seq {
		return nil
	}
	far := isFar(next, now)
	if next != 0 && next == h.Due && !far {
		return nil
	}
	key, err := keyOf(h.Flow, h.Thread)
	if err == nil && h.Version == "" {
		err = fmt.Errorf("due: settle %q: %w: the hint has no version", h.Thread, store.ErrInvalid)
	}
	if err != nil {
		return err
	}
	if far {
		if err := setAlarm(ctx, s, h.Flow, h.Thread, next); err != nil {
			return err
		}
	}
	err = retry(ctx, func() error {
		var err error
		if next == 0 || far {
			err = s.Delete(ctx, key, h.Version)
		} else {
			_, err = s.Put(ctx, key, value{Seq: h.Seq, Due: next}.encode(), h.Version)
		}
		if !errors.Is(err, store.ErrConflict) {
			return err
		}
		// Versions never repeat: a different one means that an earlier attempt
		// of ours succeeded, or that someone else wrote the hint.
		switch cell, getErr := s.Get(ctx, key); {
		case errors.Is(getErr, store.ErrNotFound):
			return nil
		case getErr != nil:
			return getErr
		case cell.Version != h.Version:
			return nil
		}
		return err
	})
	if err != nil {
		return fmt.Errorf("due: settle %q at %d: %w", h.Thread, head, err)
	}
	return nil
}

// Forget removes the hint of a thread that no longer exists, whatever the hint
// says, and retries until there is none. It cannot find the thread's alarms by
// its name; each costs one look when it rings.
func Forget(ctx context.Context, s store.Store, flow, thread string) error {
	key, err := keyOf(flow, thread)
	if err != nil {
		return err
	}
	err = retry(ctx, func() error {
		cell, err := store.Derived(s).Get(ctx, key)
		if errors.Is(err, store.ErrNotFound) {
			return nil
		} else if err != nil {
			return err
		}
		return s.Delete(ctx, key, cell.Version)
	})
	if err != nil {
		return fmt.Errorf("due: forget %q: %w", thread, err)
	}
	return nil
}

// retry calls try until it returns nil or an error that would only repeat
// itself, until ctx ends, or until it is out of patience with the store.
func retry(ctx context.Context, try func() error) error {
	began := time.Now()
	for pause := time.Millisecond; ; pause = min(2*pause, 100*time.Millisecond) {
		err := try()
		if err == nil || hopeless(err) || !errors.Is(err, store.ErrConflict) && store.OutOfPatience(ctx, began) {
			return err
		}
		select {
		case <-ctx.Done():
			return errors.Join(ctx.Err(), err)
		case <-time.After(pause):
		}
	}
}

// hopeless reports whether a call that returned err would return it again.
func hopeless(err error) bool {
	final := []error{store.ErrTooLarge, store.ErrInvalid, store.ErrClosed, store.ErrCorrupt, store.ErrKey, store.ErrNewer, store.ErrPoisoned}
	return slices.ContainsFunc(final, func(e error) bool { return errors.Is(err, e) })
}

// Remind makes sure that a thread is looked at when it is due, according to its
// journal at sequence seq. It is for callers that rebuild hints and alarms,
// which may have been lost, from the journal. Times are in microseconds since
// 1970. It reports whether it had to write: if there is a hint that is due by
// then, or the alarm, it writes nothing.
func Remind(ctx context.Context, s store.Store, flow, thread string, seq uint64, at, now int64) (bool, error) {
	h, ok, err := Get(ctx, s, flow, thread)
	if err != nil || ok && (h.Err != nil || h.Due <= at) {
		return false, err
	}
	if at > now {
		switch _, err := s.Get(ctx, alarmKey(flow, thread, at)); {
		case err == nil:
			return false, nil
		case !errors.Is(err, store.ErrNotFound):
			return false, fmt.Errorf("due: alarm of %q at %d: %w", thread, at, err)
		}
	}
	if isFar(at, now) {
		err = setAlarm(ctx, s, flow, thread, at)
	} else {
		err = Announce(ctx, s, flow, thread, seq, at)
	}
	return err == nil, err
}

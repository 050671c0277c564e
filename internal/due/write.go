package due

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/perdure/perdure/store"
)

// Announce writes that the thread will be due at a time, in microseconds since
// 1970, by a fact that is about to get sequence seq in its journal. Merged into
// a hint that is there, the sequence becomes the higher and the time the
// earlier of the two. Nothing is written where nothing changes.
//
// Merging twice is the same as once, so Announce repeats what conflicted or was
// left open by the store, until ctx ends. After an error the hint may or may
// not be written, and the fact must not be appended.
func Announce(ctx context.Context, s store.Store, flow, thread string, seq uint64, due int64) error {
	_, err := announce(ctx, s, flow, thread, value{Seq: seq, Due: due}, false)
	return err
}

// announce is Announce. Afresh says to write the hint also where nothing
// changes, so that who saw it before cannot settle it. It reports whether the
// hint is now as it should be; one that cannot be read is left as it is, and one
// that the store finds damaged is written anew.
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

// Announcement returns the write with which Announce would announce a thread,
// for those who make it together with the fact, or one without a key where there
// is nothing to write. Whoever finds that the hint was written meanwhile asks
// for another. Unseen says to believe that there is no hint yet.
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

// announcement returns the write that merges what is given into a hint, one
// without a key where nothing is to be written, and whether the hint is one that
// can be read.
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
		merged.Due = min(given.Due, 1) // what it said may be due by now
	} else if err == nil {
		h := parse(flow, old)
		if h.Err != nil {
			return w, false, nil // due now for every reader, and none removes it
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
// about to reach sequence head, by a writer who knows that nothing is due then,
// now or later. It has no key where there is no hint, or one that is to stay.
func Removal(ctx context.Context, s store.Store, flow, thread string, head uint64) (store.Write, error) {
	h, ok, err := Get(ctx, s, flow, thread)
	if err != nil || !ok || h.Err != nil || h.Seq > head {
		return store.Write{}, err
	}
	key, err := keyOf(flow, thread)
	return store.Write{Key: key, Prev: h.Version, Remove: true}, err
}

// Settle is called by a reader that has folded the thread's journal up to
// sequence head and found, at time now, that the thread is next due at a time,
// or not at all if next is 0. Times are in microseconds since 1970. It
// postpones the hint to the next time, or, where that is more than Near from
// now, sets an alarm and removes the hint; without a next time it only removes
// the hint.
//
// It leaves the hint as it is, and returns nil, if the journal has not reached
// the hint's sequence, if the hint was written since h was read, and if it
// cannot be read. After an error the hint may or may not be settled.
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
		// Versions never repeat: any other than the one we saw means that
		// an earlier try of ours worked, or that another wrote the hint.
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

// Forget removes the hint of a thread that is no more, whatever the hint says,
// and repeats that until there is none. Alarms of the thread are not found by
// its name: each makes one more look when it rings.
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

// retry calls try until it returns nil or an error that it would return again,
// until ctx ends, or until it is out of patience with the store.
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

// hopeless reports whether a call that answered err would do so again.
func hopeless(err error) bool {
	final := []error{store.ErrTooLarge, store.ErrInvalid, store.ErrClosed, store.ErrCorrupt, store.ErrKey, store.ErrNewer, store.ErrPoisoned}
	return slices.ContainsFunc(final, func(e error) bool { return errors.Is(err, e) })
}

// Remind makes sure that somebody looks at a thread at a time, of which its
// journal speaks at sequence seq: it is for those who find by the journal what
// a hint or an alarm should say, when that may have been lost. Times are in
// microseconds since 1970. It reports whether it had to write: where a hint is
// there that is due by then, or the alarm, it writes nothing.
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

package due

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/perdure/perdure/store"
)

// Near is how far ahead of its time a thread may have a hint. Settle sets an
// alarm for anything later, so nothing is late as long as the alarms of its
// flow are rung at least this often.
const Near = 10 * time.Second

// isFar reports whether next is more than Near after now.
func isFar(next, now int64) bool {
	return next > 0 && next > now && uint64(next)-uint64(now) > uint64(Near.Microseconds())
}

// alarmPrefix returns what the keys of a flow's alarms begin with.
func alarmPrefix(flow string) string { return "alarm/" + url.PathEscape(flow) + "/" }

// alarmKey returns the key of an alarm. Keys sort by time, which is positive.
func alarmKey(flow, thread string, due int64) string {
	return fmt.Sprintf("%s%016x/%s", alarmPrefix(flow), uint64(due), thread)
}

// parseAlarm parses the key of an alarm.
func parseAlarm(flow, key string) (due int64, thread string, ok bool) {
	digits, thread, _ := strings.Cut(strings.TrimPrefix(key, alarmPrefix(flow)), "/")
	due, err := strconv.ParseInt(digits, 16, 64)
	if err != nil || due <= 0 || alarmKey(flow, thread, due) != key {
		return 0, "", false
	}
	_, err = keyOf(flow, thread)
	return due, thread, err == nil
}

// setAlarm writes an alarm. One that exists is written again: a Ring that saw
// it before must not delete it, since the hint that Ring wrote for it may be
// the one that the caller is about to remove.
func setAlarm(ctx context.Context, s store.Store, flow, thread string, due int64) error {
	key := alarmKey(flow, thread, due)
	err := retry(ctx, func() error {
		_, err := s.Put(ctx, key, []byte("{}"), "")
		if !errors.Is(err, store.ErrConflict) {
			return err
		}
		old, getErr := store.Derived(s).Get(ctx, key)
		switch {
		case errors.Is(getErr, store.ErrNotFound):
			return err
		case getErr != nil:
			return getErr
		}
		_, err = s.Put(ctx, key, []byte("{}"), old.Version)
		return err
	})
	if err != nil {
		return fmt.Errorf("due: alarm of %q at %d: %w", thread, due, err)
	}
	return nil
}

// Ring makes the threads of a flow due whose alarms are not later than now, in
// microseconds since 1970: at most limit, the earliest first. Each gets a hint
// before its alarm is removed. Next is the time of the first remaining alarm,
// which is later than now unless limit was reached; 0 if there is none.
//
// An alarm that cannot be read is left alone, and so is one of a thread whose
// hint cannot be read, since that counts as due anyway. After an error some
// alarms may have rung; the others remain. If the store finds damaged cells,
// the error matches store.ErrCorrupt, and all intact alarms have rung.
func Ring(ctx context.Context, s store.Store, flow string, now int64, limit int) (rung int, next int64, err error) {
	if limit < 1 {
		return 0, 0, fmt.Errorf("due: ring %d alarms: %w: ring at least one", limit, store.ErrInvalid)
	}
	var damage error
	for cell, err := range s.List(ctx, alarmPrefix(flow), "") {
		if errors.Is(err, store.ErrCorrupt) {
			damage = errors.Join(damage, err)
			break
		}
		if err != nil {
			return rung, 0, fmt.Errorf("due: alarms of flow %q: %w", flow, err)
		}
		due, thread, ok := parseAlarm(flow, cell.Key)
		if !ok {
			continue
		}
		if due > now || rung == limit {
			return rung, due, damage
		}
		// A reader may be about to replace the hint with this very alarm.
		// Writing the hint in any case makes the reader's version outdated.
		ok, err := announce(ctx, s, flow, thread, value{Seq: 1, Due: 1}, true)
		if errors.Is(err, store.ErrCorrupt) {
			damage = errors.Join(damage, err)
			continue
		}
		if err != nil {
			return rung, 0, fmt.Errorf("due: ring: %w", err)
		}
		if !ok {
			continue
		}
		err = retry(ctx, func() error {
			err := s.Delete(ctx, cell.Key, cell.Version)
			if errors.Is(err, store.ErrConflict) {
				return nil // another worker rang it, or it was set again
			}
			return err
		})
		if err != nil {
			return rung, 0, fmt.Errorf("due: removing the alarm of %q: %w", thread, err)
		}
		rung++
	}
	if damage != nil {
		damage = fmt.Errorf("due: alarms of flow %q: %w", flow, damage)
	}
	return rung, 0, damage
}

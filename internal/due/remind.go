package due

import (
	"context"
	"errors"
	"fmt"

	"github.com/perdure/perdure/store"
)

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

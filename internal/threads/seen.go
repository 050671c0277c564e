package threads

import (
	"time"

	"github.com/perdure/perdure/internal/clock"
	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/journal"
)

// SeenMark returns the metadata by which someone says that they have seen the failure
// of a thread, "" unless it has failed. It holds the time of the failure, so that it
// does not count for a later one.
func SeenMark(t *journal.Thread) string {
	if StatusOf(t) != journal.StatusFailed {
		return ""
	}
	return clock.Stamp(t.Runs[len(t.Runs)-1].Ended).UTC().Format(time.RFC3339Nano)
}

// IsSeen reports whether someone has seen the failure of a thread.
func IsSeen(t *journal.Thread) bool {
	mark := SeenMark(t)
	return mark != "" && t.Meta[fault.SeenKey] == mark
}

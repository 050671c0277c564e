// Package retain removes threads that have been at rest for long enough: it archives
// or erases them, in the background, one worker at a time for a store. It may import
// store, internal/duty, lifecycle, threads and vault, and what these import.
//
// What goes follows from rules and from the threads themselves; there is no list of
// threads to remove. A look goes through the threads that the index says are old
// enough, reads each again with its journal, and removes it on condition that it has
// not changed since.
//
// The cell perdure/retention says which worker looks, see package duty, and which
// threads it is about to remove, so that another one completes what it has begun. The
// cell retention/TENANT says what came of the last look.
package retain

import (
	"time"

	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/journal"
	"github.com/perdure/perdure/internal/threads"
)

// Rule says how long threads are kept: see perdure.Retention.
type Rule struct {
	Tenant       string
	Default      bool
	Flow         string
	Keep         time.Duration
	Forever      bool
	Archive      bool
	KeepArchived time.Duration
	Unseen       bool
}

// IsFor reports whether the rule can fit threads of a tenant.
func (r *Rule) IsFor(tenant string) bool {
	return (r.Tenant == "" || r.Tenant == tenant) && (!r.Default || tenant == "")
}

// Rules are rules of which the first that fits a thread counts.
type Rules []Rule

// For returns the rule of a thread, nil if there is none.
func (rules Rules) For(tenant, flow string) *Rule {
	for i := range rules {
		if r := &rules[i]; r.IsFor(tenant) && (r.Flow == "" || r.Flow == flow) {
			return r
		}
	}
	return nil
}

// least returns the shortest time that a thread of a tenant is kept, and whether any
// goes at all. In the archive, it is the time there.
func (rules Rules) least(tenant string, archive bool) (least time.Duration, any bool) {
	for _, r := range rules {
		d, goes := r.Keep, !r.Forever
		if archive {
			d, goes = r.KeepArchived, r.KeepArchived > 0
		}
		if !r.IsFor(tenant) {
			continue
		}
		if goes && (!any || d < least) {
			least, any = d, true
		}
		if r.Flow == "" {
			break // no later rule counts
		}
	}
	return least, any
}

// interval returns the time between two looks at the threads in the store, or in the
// archive; 0 if there is nothing to look for.
func (rules Rules) interval(archive bool) time.Duration {
	var every time.Duration
	most := 10 * time.Minute
	if archive {
		most = time.Hour
	}
	for _, r := range rules {
		if d, any := (Rules{r}).least(r.Tenant, archive); any {
			d = min(max(d/100, time.Second), most)
			if every == 0 || d < every {
				every = d
			}
		}
	}
	return every
}

// elapsed reports whether a time has passed since something happened, both in
// microseconds.
func elapsed(since int64, d time.Duration, now int64) bool { return now-since >= d.Microseconds() }

// atLeast is how long threads stay that someone has prepared and not used yet: those
// without a run, and those that were restored from the archive.
const atLeast = 24 * time.Hour

// keeps returns how long a thread stays after its last change.
func (r *Rule) keeps(status journal.Status) time.Duration {
	if status == "" {
		return r.keepsPrepared()
	}
	return r.Keep
}

func (r *Rule) keepsPrepared() time.Duration { return max(r.Keep, atLeast) }

// rests reports whether nothing happens on a thread.
func rests(t *journal.Thread) bool {
	return t.Foreign == "" && t.Moved == "" && t.Busy() == nil && len(t.Inbox) == 0
}

// hidden reports whether a thread stays because it has failed and nobody has seen it.
func (r *Rule) hidden(t *journal.Thread) bool {
	return !r.Unseen && threads.StatusOf(t) == journal.StatusFailed && !threads.IsSeen(t)
}

// hiddenRoughly is hidden for a thread in a list: only the thread itself tells of
// which failure its metadata is.
func (r *Rule) hiddenRoughly(s threads.Summary) bool {
	return !r.Unseen && s.Status == journal.StatusFailed && s.Meta[fault.SeenKey] == ""
}

package threads

import (
	"context"
	"iter"
	"maps"
	"strings"

	"github.com/perdure/perdure/internal/journal"
	"github.com/perdure/perdure/store"
)

// FacetStatuses are all statuses by which lists find threads.
var FacetStatuses = []journal.Status{"", journal.StatusQueued, journal.StatusRunning, journal.StatusSuspended, journal.StatusPaused, journal.StatusBlocked, journal.StatusQuarantined,
	journal.StatusSucceeded, journal.StatusFailed, journal.StatusCancelled, StatusDamaged}

// ByCreation returns the cursor of a thread in a list that has those first that were
// created last, given its cursor in any other list.
func ByCreation(cursor string) string {
	words := strings.Split(cursor[min(1, len(cursor)):], ".") // a time and a number may be around it
	if !strings.HasPrefix(cursor, byCreation) && len(words) > 1 {
		words = words[1:]
	}
	return byCreation + words[0]
}

// CountCells returns how many threads there are, with those that are about to begin.
func (r *Tenant) CountCells(ctx context.Context) (int, error) {
	if r.All.bare {
		return 0, nil
	}
	n, err := store.Count(ctx, r.All.Store, r.All.facet(r.Part, "all"))
	if IsDamage(err) {
		err = nil
	}
	return n, err
}

// Cursors yields the cursors of the threads that CountCells counts.
func (r *Tenant) Cursors(ctx context.Context) iter.Seq2[string, error] {
	return func(yield func(string, error) bool) {
		for key, err := range r.All.facetCells(ctx, r.All.facet(r.Part, "all"), "") {
			if !yield(byCreation+key[facetLen(key):], err) {
				return
			}
		}
	}
}

// Restored yields the cursors of the threads that have come back from the archive since
// a time, in microseconds, and some that came earlier.
func (r *Tenant) Restored(ctx context.Context, since int64) iter.Seq2[string, error] {
	return func(yield func(string, error) bool) {
		if r.All.bare {
			return
		}
		for key, err := range r.All.spanCells(ctx, span{facet: r.All.facet(r.Part, "back"), last: flip(minuteOf(since)) + "~"}, "") {
			if !yield(ByCreation(byChange+key[facetLen(key):]), err) {
				return
			}
		}
	}
}

// Count returns how many of the tenant's threads have each status, and how many asks
// are open.
func (r *Tenant) Count(ctx context.Context) (statuses map[journal.Status]int, asks int, err error) {
	statuses = map[journal.Status]int{}
	if r.Owner != nil || r.All.bare {
		err = r.count(ctx, Query{}, func(s Summary) {
			statuses[s.Status]++
			asks += s.Asks
		})
		return statuses, asks, err
	}
	if err := r.All.completeIndex(ctx); err != nil {
		return nil, 0, err
	}
	// Of those that a worker has, or is to have, the summary tells more than the facet.
	for _, status := range FacetStatuses {
		if facetStatus(status) == string(journal.StatusQueued) {
			continue
		}
		n, err := store.Count(ctx, r.All.Store, r.All.facet(r.Part, "status", string(status)))
		if err != nil && !IsDamage(err) {
			return nil, 0, err
		}
		if n > 0 {
			statuses[status] = n
		}
	}
	if err := r.discountLeft(ctx, statuses); err != nil {
		return nil, 0, err
	}
	maps.DeleteFunc(statuses, func(_ journal.Status, n int) bool { return n == 0 })
	for _, status := range []journal.Status{journal.StatusQueued, journal.StatusRunning} {
		if err := r.count(ctx, Query{Status: &status}, func(Summary) { statuses[status]++ }); err != nil {
			return nil, 0, err
		}
	}
	err = r.count(ctx, Query{Asks: true}, func(s Summary) { asks += s.Asks })
	return statuses, asks, err
}

// count calls fn with each thread that a query selects and that is not damaged.
func (r *Tenant) count(ctx context.Context, q Query, fn func(Summary)) error {
	for s, err := range r.Select(ctx, q, "") {
		switch {
		case err == nil:
			fn(s.Summary)
		case !IsDamage(err): // lists report it
			return err
		}
	}
	return ctx.Err()
}

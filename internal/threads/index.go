package threads

import (
	"cmp"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/perdure/perdure/internal/journal"
	"github.com/perdure/perdure/store"
)

// Lists find threads by an index of cells. A facet is what threads have in common,
// such as a status or a user, and each thread has a cell under each of its facets:
//
//	index/TENANT/FACET/THREAD     FACET is a keyed hash
//
// Two rules hold whatever dies when:
//
//   - The index has all cells that follow from a summary that is indexed. It may
//     have more: a reader ignores those that do not follow from the summary.
//   - The summary tells all cells that the thread may have, so that Erase finds them.
//
// A batch writes a summary with its cells. Otherwise a writer first says
// in the summary which cells it is about to write, then writes them, then the new
// summary, and then removes those that no longer follow from it.
//
// A removal must not hit a cell that has come to follow from a later summary. So
// the keys of facets that come and go contain a number that only grows, past those of
// all cells that somebody may be about to remove. Before a writer replaces a summary
// with cells to be removed, it removes them itself, since whoever wrote it may be dead.
// Cells that a writer has announced who was overtaken may still come, and are told of
// for longer.

const indexPrefix = "index/"

// indexMark is the value of the cells of the index.
var indexMark = []byte{'1'}

// IndexCell says that all threads of the store are in the index.
const IndexCell = "perdure/index"

// maxIndexed is the maximum length of a value of metadata by which threads are found.
const maxIndexed = 256

// facet returns the prefix of the keys of the threads that have something in common.
func (c *Threads) facet(part string, texts ...string) string {
	return indexPrefix + part + "/" + Base32.EncodeToString(c.Hash(append([]string{"index", part}, texts...)...)[:10]) + "/"
}

// A newer thread or time sorts before an older one.

const flips = 32 // characters of an incarnation: time and random bytes

// flip reverses the order of texts in Base32, and is its own inverse.
func flip(text string) string {
	const digits = "0123456789abcdefghjkmnpqrstvwxyz"
	b := []byte(text)
	for i, c := range b {
		if d := strings.IndexByte(digits, c); d >= 0 {
			b[i] = digits[len(digits)-1-d]
		}
	}
	return string(b)
}

// newestFirst returns an incarnation in a form that sorts newer ones first.
func newestFirst(incarnation string) string {
	n := min(flips, len(incarnation))
	return flip(incarnation[:n]) + incarnation[n:]
}

// minuteOf returns a text that sorts times by their minute.
func minuteOf(micros int64) string {
	var b [5]byte
	binary.BigEndian.PutUint32(b[1:], uint32(max(micros, 0)/60e6))
	return Base32.EncodeToString(b[:])
}

// momentOf returns a text that sorts times.
func momentOf(micros int64) string {
	return Base32.EncodeToString(binary.BigEndian.AppendUint64(nil, uint64(max(micros, 0))))
}

// replaces completes a summary that replaces another one with the numbers of its
// keys in the index.
func (s *Summary) replaces(was Summary) {
	s.Indexed, s.Pending, s.Gone = true, nil, nil
	s.Back, s.Leaving = cmp.Or(s.Back, was.Back), was.Leaving
	s.Late, s.Removed = was.Late, max(was.Removed, highest(was.Gone), highest(was.Late))
	next := max(s.Seq, s.Removed+1)
	s.StatusSeq, s.MetaSeq = max(next, was.StatusSeq+1), max(next, was.MetaSeq+1)
	if was.Indexed && facetStatus(was.Status) == facetStatus(s.Status) && was.Waits.equal(s.Waits) && minuteOf(was.Changed()) == minuteOf(s.Changed()) {
		s.StatusSeq = was.StatusSeq
	}
	if was.Indexed && was.Flow == s.Flow && maps.Equal(was.Meta, s.Meta) {
		s.MetaSeq = was.MetaSeq
	}
}

// highest returns the highest number of keys.
func highest(keys []string) (number uint64) {
	for _, key := range keys {
		_, n := parseIndexKey(key)
		number = max(number, n)
	}
	return number
}

// facetStatus returns the status of a facet. Threads that wait for a worker and
// those that have one share one, since most of them soon have another status.
func facetStatus(s journal.Status) string {
	if s == journal.StatusRunning {
		s = journal.StatusQueued
	}
	return string(s)
}

// IsIndex reports whether a cell belongs to the index.
func IsIndex(key string) bool { return strings.HasPrefix(key, indexPrefix) }

// indexKeys returns the keys that follow from a summary, nil if it is not indexed.
func (c *Threads) indexKeys(name string, s Summary) []string {
	if !s.Indexed {
		return nil
	}
	if c.bare {
		return []string{c.allKey(name)}
	}
	part, incarnation, _ := strings.Cut(name, ".")
	thread := newestFirst(incarnation)
	number := func(n uint64) string { return "." + strconv.FormatUint(n, 36) }
	keys := []string{c.facet(part, "status", facetStatus(s.Status)) + flip(minuteOf(s.Changed())) + "." + thread + number(s.StatusSeq)}
	if w := s.Waits; w != nil {
		opened, expires := momentOf(w.Opened)+"."+thread+number(s.StatusSeq), momentOf(w.Expires)+"."+thread+number(s.StatusSeq)
		keys = append(keys, c.facet(part, "asks", "")+opened, c.facet(part, "asks by expiry", "")+expires)
		if s.User != "" {
			keys = append(keys, c.facet(part, "asks", s.User)+opened, c.facet(part, "asks by expiry", s.User)+expires)
		}
		for _, who := range w.Who {
			keys = append(keys, c.facet(part, "asks of", who)+opened)
		}
	}
	for _, k := range slices.Sorted(maps.Keys(s.Meta)) {
		keys = append(keys, c.facet(part, "meta", k, s.Meta[k])+thread+number(s.MetaSeq))
	}
	if s.Flow != "" {
		keys = append(keys, c.facet(part, "flow", s.Flow)+thread+number(s.MetaSeq))
	}
	if s.User != "" {
		keys = append(keys, c.facet(part, "user", s.User)+thread)
	}
	if s.Back != 0 {
		keys = append(keys, c.facet(part, "back")+flip(minuteOf(s.Back))+"."+thread+number(1)) // it never changes
	}
	if isStray(incarnation, s.Created) {
		keys = append(keys, c.facet(part, "strays")+thread)
	}
	return append(keys, c.allKey(name))
}

// allKey returns the key of a thread in the facet of all threads.
func (c *Threads) allKey(name string) string {
	part, incarnation, _ := strings.Cut(name, ".")
	return c.facet(part, "all") + newestFirst(incarnation)
}

// changedKeys returns the keys that follow from a summary and not from the one that
// it replaces, and those that no longer do and are to be removed. That of all threads
// is not among them: it is there before the first summary.
func (c *Threads) changedKeys(name string, was, s Summary) (added, gone []string) {
	before, after, all := c.indexKeys(name, was), c.indexKeys(name, s), c.allKey(name)
	for _, key := range after {
		if !slices.Contains(before, key) && key != all {
			added = append(added, key)
		}
	}
	for _, key := range slices.Concat(before, was.Pending, was.Gone) {
		if !slices.Contains(after, key) && !slices.Contains(gone, key) {
			gone = append(gone, key)
		}
	}
	return added, gone
}

// parseIndexKey returns the thread that a key of the index leads to, and the number,
// 0 if the key has none.
func parseIndexKey(key string) (name string, since uint64) {
	parts := strings.SplitN(strings.TrimPrefix(key, indexPrefix), "/", 3)
	if len(parts) < 3 {
		return "", 0
	}
	words := strings.Split(parts[2], ".")
	if len(words) == 3 { // a time comes first
		words = words[1:]
	}
	if len(words) == 2 {
		since, _ = strconv.ParseUint(words[1], 36, 64)
	}
	return parts[0] + "." + newestFirst(words[0]), since
}

// index writes the cells with the given keys.
func (c *Threads) index(ctx context.Context, keys []string) error {
	if c.bare {
		return nil
	}
	return c.each(keys, func(key string) error {
		_, err := store.Derived(c.Store).Put(ctx, key, indexMark, "")
		if errors.Is(err, store.ErrConflict) {
			return nil
		}
		return err
	})
}

// unindex removes cells from the index.
func (c *Threads) unindex(ctx context.Context, keys []string) error {
	if c.bare {
		return nil
	}
	return c.each(keys, func(key string) error { return c.Remove(ctx, key, "") })
}

// each calls fn with all keys, and with several at a time where each is a request
// of its own that may take long.
func (c *Threads) each(keys []string, fn func(key string) error) error {
	if c.batches || len(keys) < 2 {
		for _, key := range keys {
			if err := fn(key); err != nil {
				return err
			}
		}
		return nil
	}
	const atOnce = 16
	errs, gate := make(chan error, len(keys)), make(chan struct{}, atOnce)
	for _, key := range keys {
		gate <- struct{}{}
		go func() {
			errs <- fn(key)
			<-gate
		}()
	}
	var failed error
	for range keys {
		failed = cmp.Or(failed, <-errs)
	}
	return failed
}

// indexedMeta returns the metadata by which a thread is found.
func indexedMeta(t *journal.Thread) map[string]string {
	var meta map[string]string
	for k, v := range t.Meta {
		if len(v) <= maxIndexed {
			if meta == nil {
				meta = map[string]string{}
			}
			meta[k] = v
		}
	}
	return meta
}

// RemoveSummary removes the summary of a thread and its cells in the index.
func (c *Threads) RemoveSummary(ctx context.Context, name string) error {
	for {
		cell, err := store.Derived(c.Store).Get(ctx, JournalKey(name))
		if err != nil && !errors.Is(err, store.ErrNotFound) {
			return err
		}
		var s Summary
		_ = json.Unmarshal(cell.Value, &s) // SweepIndex finds the cells of a damaged one
		if err := c.unindex(ctx, append(slices.Concat(c.indexKeys(name, s), s.Pending, s.Gone, s.Late), c.allKey(name))); err != nil || cell.Version == "" {
			return err
		}
		// If another writer has changed it meanwhile, there may be more cells.
		err = c.Store.Delete(ctx, cell.Key, cell.Version)
		if err == nil || ctx.Err() != nil || !errors.Is(err, store.ErrConflict) {
			return err
		}
	}
}

// CompleteIndexed writes the cells of a thread that are missing in the index, and
// returns how many were.
func (c *Threads) CompleteIndexed(ctx context.Context, name string) (missing int, err error) {
	s, err := c.ReadSummary(ctx, name)
	if err == nil && s.ID != "" && !s.Indexed {
		s, err = c.reindex(ctx, name, s)
	}
	var keys []string
	for _, key := range c.indexKeys(name, s) {
		if err == nil {
			_, err = store.Derived(c.Store).Get(ctx, key)
		}
		if errors.Is(err, store.ErrNotFound) {
			keys, err = append(keys, key), nil
		}
		if err != nil {
			return 0, err
		}
	}
	if len(keys) == 0 || c.bare {
		return len(keys), err
	}
	// As any writer, it says which cells it is about to write.
	_, err = store.Update(ctx, store.Derived(c.Store), JournalKey(name), func(old store.Cell) ([]byte, error) {
		var now Summary
		_ = json.Unmarshal(old.Value, &now)
		now.Pending = append(now.Pending, without(keys, now.Pending)...)
		if old.Version == "" || !now.Indexed || len(without(keys, c.indexKeys(name, now))) > 0 { // erased, or another writer brings it up to date
			return nil, ErrNothing
		}
		return json.Marshal(now)
	})
	if errors.Is(err, ErrNothing) {
		return 0, nil
	}
	if err == nil {
		err = c.index(ctx, keys)
	}
	if err == nil {
		s, err = c.ReadSummary(ctx, name)
	}
	if err != nil {
		return 0, err
	}
	return len(keys), c.unindex(ctx, without(without(keys, c.indexKeys(name, s)), s.Pending)) // it was erased, or changed
}

// SweepIndex removes cells of the index that follow from no summary and never will,
// and returns how many there were. It calls abandon with the names of threads that have
// not begun, which reports whether they never will.
func (c *Threads) SweepIndex(ctx context.Context, abandon func(name string) (bool, error)) (swept int, err error) {
	for cell, err := range c.Store.List(ctx, indexPrefix, "") {
		if errors.Is(err, store.ErrCorrupt) {
			return swept, nil // lists rewrite damaged ones
		}
		if err != nil {
			return swept, err
		}
		name, since := parseIndexKey(cell.Key)
		s, err := c.ReadSummary(ctx, name)
		if errors.Is(err, store.ErrCorrupt) {
			continue
		}
		if err != nil {
			return swept, err
		}
		if s.ID == "" { // erased, or about to begin
			begun, err := c.Begun(ctx, JournalKey(name))
			gone := errors.Is(err, store.ErrDropped)
			if err == nil && !begun {
				if gone, err = abandon(name); err != nil {
					return swept, err
				}
			}
			if !gone {
				continue
			}
		} else if !c.outdated(name, s, cell.Key, since) {
			continue
		}
		if err := c.Store.Delete(ctx, cell.Key, cell.Version); err != nil && !errors.Is(err, store.ErrConflict) {
			return swept, err
		}
		swept++
	}
	return swept, nil
}

// outdated reports whether a key of the index does not follow from the thread's
// summary and never will again.
func (c *Threads) outdated(name string, s Summary, key string, number uint64) bool {
	return s.Indexed && number > 0 && number < max(s.StatusSeq, s.MetaSeq, s.Removed+1) && !slices.Contains(s.Pending, key) && !slices.Contains(c.indexKeys(name, s), key)
}

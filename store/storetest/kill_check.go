package storetest

import (
	"bytes"
	"errors"
	"fmt"
	"strings"

	"github.com/perdure/perdure/store"
)

// life is what one child said about its calls before it was killed.
type life struct {
	number     int
	opening    bool // it came as far as to open the store
	acks, puts int  // acknowledged
	calls      [killWriters][]*killCall
}

// killCall is one call of a writer.
type killCall struct {
	kind   string
	after  uint64
	count  int
	answer string // "ack", "conflict", or "" if it was cut
	found  bool   // an append that this look at the store has found
	seen   bool   // found by some look
}

func (c *killCall) isAppend() bool { return c.kind == toOwn || c.kind == toSpan || c.kind == stale }

// note takes in a line that the child said.
func (l *life) note(line string) error {
	said, rest, _ := strings.Cut(line, " ")
	switch said {
	case "opening":
		l.opening = true
		return nil
	case "fail":
		return fmt.Errorf("the writer gave up: %s", rest)
	}
	var writer, n int
	if _, err := fmt.Sscan(rest, &writer, &n); err != nil || writer < 0 || writer >= killWriters {
		return fmt.Errorf("storetest: the child said %q, which is not part of its protocol", line)
	}
	if said == "begin" {
		c := &killCall{}
		if _, err := fmt.Sscan(rest, &writer, &n, &c.kind, &c.after, &c.count); err != nil || n != len(l.calls[writer])+1 {
			return fmt.Errorf("storetest: the child said %q out of turn", line)
		}
		l.calls[writer] = append(l.calls[writer], c)
		return nil
	}
	if n < 1 || n != len(l.calls[writer]) {
		return fmt.Errorf("storetest: the child said %q out of turn", line)
	}
	c := l.calls[writer][n-1]
	c.answer = said
	if said != "ack" {
		return nil
	}
	switch c.kind {
	case stale:
		return fmt.Errorf("an append after %d was acknowledged although the journal already ended later: two writers that saw the same end would both win", c.after)
	case staleCell:
		return errors.New("a put over a version that the cell no longer had was acknowledged: it overwrote what its writer had not seen")
	case toCell, toLoose:
		l.puts++
		return nil
	case toDrop, toDelete:
		return nil
	}
	l.acks++
	var last uint64
	if _, err := fmt.Sscan(rest, &writer, &n, &last); err != nil || last != c.after+uint64(c.count) {
		return fmt.Errorf("an append of %d entries after %d returned %d as its end, want %d", c.count, c.after, last, c.after+uint64(c.count))
	}
	return nil
}

// forget makes the next look find everything anew.
func (l *life) forget() {
	for _, calls := range l.calls {
		for _, c := range calls {
			c.found = false
		}
	}
}

// compare compares the store with what these lives said.
func (k *killer) compare(s store.Store, lives []*life, behind uint64) {
	for _, l := range lives {
		for writer := range l.calls {
			k.journal(s, ownJournal(l.number, writer), 0)
		}
	}
	k.spanned = k.journal(s, spanning, behind)
	batches := store.BatcherOf(s) != nil
	for _, l := range lives {
		struck := false
		for writer, calls := range l.calls {
			for n, c := range calls {
				if must := c.answer == "ack" || c.seen; must && !c.found && c.isAppend() {
					k.Fatalf("after life %d: of writer %d in life %d, call %d is gone: %d entries after %d of the %s journal, %s. An acknowledged append must not vanish, nor must one that a reader saw.",
						len(k.lives), writer, l.number, n+1, c.count, c.after, c.kind, fate(c))
				}
				if batches && c.isAppend() && batched(n+1) {
					k.paired(s, c, killID{l.number, writer, n + 1, 0, c.count})
				}
				if c.answer == "ack" {
					k.gone(s, c.kind, doomed(l.number, writer, n+1))
				}
				if c.answer == "" {
					struck = true
				}
				if c.answer == "" && c.isAppend() && l.number > k.checked {
					k.inFlight++
					if c.found {
						k.completed++
					}
				}
				c.seen = c.seen || c.found
			}
		}
		if struck && l.number > k.checked {
			k.struck++
		}
	}
	for writer := range killWriters {
		k.cell(s, writer, toCell, cellKey(writer))
		k.cell(s, writer, toLoose, looseKey(writer))
	}
}

// paired demands that the cell of a batch is there if its entries are, and only then.
// An engine that is another process may make the last call of a life after the journal
// was read: its entries are there by the time that its cell is.
func (k *killer) paired(s store.Store, c *killCall, id killID) {
	key := paired(id.life, id.writer, id.call)
	cell, err := s.Get(k.ctx, key)
	if late := err == nil && !c.found && c.answer == ""; late && c.kind == toSpan {
		k.spanned = k.journal(s, spanning, k.spanned) // what the next life wrote behind c.after was read
	} else if late && c.kind == toOwn {
		k.journal(s, ownJournal(id.life, id.writer), c.after)
	}
	switch missing := errors.Is(err, store.ErrNotFound); {
	case err != nil && !missing:
		k.Fatalf("after life %d: Get(%q) = %v, want the cell of a batch or none", len(k.lives), key, err)
	case missing == c.found:
		k.Fatalf("after life %d: of a batch (%+v, answer %q) the entries are there: %t, and the cell: %t. A batch is there as a whole or not at all.", len(k.lives), id, c.answer, c.found, !missing)
	case !missing && !bytes.Equal(cell.Value, id.bytes()):
		k.Fatalf("after life %d: cell %q holds %.60q, want what its batch wrote", len(k.lives), key, cell.Value)
	}
}

// gone demands that what an acknowledged call dropped or deleted stays away.
func (k *killer) gone(s store.Store, kind, name string) {
	switch kind {
	case toDrop:
		if _, err := store.ReadAll(k.ctx, s, name, 0); !errors.Is(err, store.ErrDropped) {
			k.Fatalf("after life %d: Read(%q) = %v, want store.ErrDropped: its Drop was acknowledged and is final", len(k.lives), name, err)
		}
	case toDelete:
		if _, err := s.Get(k.ctx, name); !errors.Is(err, store.ErrNotFound) {
			k.Fatalf("after life %d: Get(%q) = %v, want store.ErrNotFound: its Delete was acknowledged", len(k.lives), name, err)
		}
	}
}

func fate(c *killCall) string {
	switch {
	case c.seen:
		return "found after an earlier kill"
	case c.answer == "ack":
		return "acknowledged"
	}
	return "not acknowledged"
}

// journal reads a journal behind a sequence, demands that it consists of
// whole appends that someone made there, each once, and returns its end.
func (k *killer) journal(s store.Store, name string, behind uint64) uint64 {
	bad := func(seq uint64, format string, args ...any) {
		k.Helper()
		k.Fatalf("after life %d: journal %q at sequence %d: %s", len(k.lives), name, seq, fmt.Sprintf(format, args...))
	}
	end := behind
	var batch killID // the last entry, which index and count place in its batch
	for e, err := range s.Read(k.ctx, name, behind) {
		if err != nil {
			bad(end+1, "Read ended with %v, want the entries that were acknowledged", err)
		}
		if end++; e.Seq != end {
			bad(end, "Read yielded sequence %d instead: sequences are dense", e.Seq)
		}
		id, ok := parseKillID(e.Data)
		if !ok || !bytes.Equal(e.Data, id.bytes()) {
			bad(end, "it holds %.60q, which no one wrote", e.Data)
		}
		if next := batch.index + 1; next < batch.count {
			if batch.index = next; id != batch {
				bad(end, "entry %d of a batch of %d is %+v: batches are adjacent and whole", next+1, batch.count, id)
			}
			continue
		}
		batch = id
		c := k.call(id)
		switch {
		case c == nil:
			bad(end, "it holds %+v, a call that was never begun", id)
		case id.index != 0:
			bad(end, "it holds entry %d of %d without those before it: batches are whole", id.index+1, id.count)
		case c.kind == toOwn && name != ownJournal(id.life, id.writer), c.kind == toSpan && name != spanning, !c.isAppend(), id.count != c.count:
			bad(end, "it holds %+v, which was written elsewhere (%s)", id, c.kind)
		case c.kind == stale, c.answer == "conflict":
			bad(end, "it holds %+v, an append behind %d that was to be refused or was: a conflict writes nothing", id, c.after)
		case c.found:
			bad(end, "it holds %+v for the second time", id)
		case c.after+1 != end:
			bad(end, "it holds %+v, which was appended behind %d", id, c.after)
		}
		c.found = true
	}
	if batch.index+1 < batch.count {
		bad(end, "it ends with entry %d of a batch of %d (%s): an append is there as a whole or not at all", batch.index+1, batch.count, fate(k.call(batch)))
	}
	return end
}

// names demands that Journals knows the journals that hold something, in
// order, and no others.
func (k *killer) names(s store.Store) {
	want := map[string]bool{}
	may := map[string]bool{} // written to be dropped, and not known to be
	for _, l := range k.lives {
		for writer, calls := range l.calls {
			for n, c := range calls {
				if c.kind == toDrop && c.answer != "ack" {
					may[doomed(l.number, writer, n+1)] = true
				}
				if c.found && c.kind == toOwn {
					want[ownJournal(l.number, writer)] = true
				} else if c.found {
					want[spanning] = true
				}
			}
		}
	}
	before := ""
	for name, err := range s.Journals(k.ctx, "") {
		if err != nil {
			k.Fatalf("after life %d: Journals ended with %v", len(k.lives), err)
		}
		if name <= before || !want[name] && !may[name] {
			k.Fatalf("after life %d: Journals yielded %q after %q, want each journal that holds something once, in order, and no other", len(k.lives), name, before)
		}
		delete(want, name)
		before = name
	}
	for name := range want {
		k.Fatalf("after life %d: Journals did not yield %q, though it holds entries, nor %d more", len(k.lives), name, len(want)-1)
	}
}

func (k *killer) call(id killID) *killCall {
	if id.life < 1 || id.life > len(k.lives) || id.writer < 0 || id.writer >= killWriters {
		return nil
	}
	calls := k.lives[id.life-1].calls[id.writer]
	if id.call < 1 || id.call > len(calls) {
		return nil
	}
	return calls[id.call-1]
}

// cell demands that a writer's cell holds its last acknowledged value, or one
// that it was about to put since then. A power failure may undo those of kind
// toLoose, up to what was seen after an earlier one.
func (k *killer) cell(s store.Store, writer int, kind, key string) {
	var acked killID
	open := map[killID]bool{}
	for _, l := range k.lives {
		for n, c := range l.calls[writer] {
			id := killID{l.number, writer, n + 1, 0, 1}
			switch {
			case c.kind != kind || c.answer == "conflict":
			case c.answer == "ack" && (kind == toCell || k.disk == nil) || c.seen:
				acked = id
				clear(open)
			default:
				open[id] = true
			}
		}
	}
	cell, err := s.Get(k.ctx, key)
	if acked == (killID{}) && errors.Is(err, store.ErrNotFound) {
		return
	}
	if err != nil {
		k.Fatalf("after life %d: Get(%q) = %v, want the value that was acknowledged", len(k.lives), key, err)
	}
	id, ok := parseKillID(cell.Value)
	if !ok || !bytes.Equal(cell.Value, id.bytes()) {
		k.Fatalf("after life %d: cell %q holds %.60q, which no one wrote", len(k.lives), key, cell.Value)
	}
	if id != acked && !open[id] {
		k.Fatalf("after life %d: cell %q holds %+v, want %+v, which was last acknowledged or seen, or one put after it. An acknowledged put is never undone, and a refused one writes nothing.", len(k.lives), key, id, acked)
	}
	k.call(id).seen = true
}

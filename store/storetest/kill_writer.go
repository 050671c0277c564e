package storetest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"sync/atomic"

	"github.com/perdure/perdure/store"
)

// killMark begins the lines that a child says to its parent: which call it
// begins and what became of it, with one write each, so that a kill leaves
// whole lines.
const killMark = "~storetest "

// killWriters is how many goroutines write in a child.
const killWriters = 4

// The kinds of calls that a child makes.
const (
	toOwn     = "own"      // append to the writer's journal of this life
	toSpan    = "span"     // append to the journal of all writers and lives
	stale     = "stale"    // append to the own journal where it no longer ends
	toCell    = "cell"     // put the writer's cell, of all lives
	toLoose   = "loose"    // put another cell of the writer, unsynced where the store can
	staleCell = "oldcell"  // put it with a version that it no longer has
	toDrop    = "drop"     // drop a journal that was written for that
	toDelete  = "delete"   // delete a cell that was put for that
	spanning  = "spanning" // the name of the journal of all
)

func ownJournal(life, writer int) string { return fmt.Sprintf("life-%d-writer-%d", life, writer) }
func cellKey(writer int) string          { return fmt.Sprintf("cell-%d", writer) }
func looseKey(writer int) string         { return fmt.Sprintf("loose-%d", writer) }

// doomed is the name of what one call writes and then drops or deletes.
func doomed(life, writer, call int) string {
	return fmt.Sprintf("life-%d-writer-%d-doomed-%d", life, writer, call)
}

// batched reports whether an append, by its number among a writer's calls, is a
// batch where the store can do that: its first entry is the value of a cell too,
// called paired.
func batched(call int) bool { return call%3 == 0 }

func paired(life, writer, call int) string {
	return fmt.Sprintf("life-%d-writer-%d-paired-%d", life, writer, call)
}

// killID says who wrote an entry, in which call, and which of how many.
type killID struct{ life, writer, call, index, count int }

// bytes returns the entry that has this id. Half are JSON and half are not,
// and sizes vary, since stores may treat them differently.
func (id killID) bytes() []byte {
	rng := rand.New(rand.NewPCG(uint64(id.life)<<32|uint64(id.writer), uint64(id.call)<<32|uint64(id.index)))
	size := rng.IntN(300)
	if rng.IntN(25) == 0 {
		size = rng.IntN(16 << 10)
	}
	fill := make([]byte, size)
	for i := range fill {
		fill[i] = byte(rng.Uint32())
	}
	head := fmt.Sprintf("[%d,%d,%d,%d,%d", id.life, id.writer, id.call, id.index, id.count)
	if id.call%2 == 0 {
		return fmt.Appendf(nil, `%s,"%x"]`, head, fill)
	}
	return append([]byte(head+"]\n"), fill...)
}

func parseKillID(entry []byte) (id killID, ok bool) {
	head := string(entry[:min(len(entry), 80)])
	n, _ := fmt.Sscanf(head, "[%d,%d,%d,%d,%d", &id.life, &id.writer, &id.call, &id.index, &id.count)
	return id, n == 5
}

// killed is a life: it writes until the parent kills it or is gone.
func killed(open Opener, order killOrder) {
	go func() {
		io.Copy(io.Discard, os.Stdin)
		os.Exit(3) // the parent is gone
	}()
	ctx := context.Background()
	fmt.Printf("%sopening\n", killMark)
	s, err := open(ctx, order.Dir)
	if err != nil {
		giveUp("the store does not open: %v", err)
	}
	var end atomic.Uint64
	end.Store(order.Spanned)
	for i := range killWriters {
		w := &killWriter{ctx: ctx, s: s, batcher: store.BatcherOf(s), life: order.Life, id: i, spanEnd: &end}
		go w.write()
	}
	select {}
}

func giveUp(format string, args ...any) {
	fmt.Printf("%sfail %q\n", killMark, fmt.Sprintf(format, args...))
	os.Exit(4)
}

type killWriter struct {
	ctx      context.Context
	s        store.Store
	batcher  store.Batcher // nil if s cannot batch
	life, id int
	calls    int
	refused  int            // own appends and puts in a row
	end      uint64         // of the own journal
	spanEnd  *atomic.Uint64 // of the spanning journal, as far as any writer knows
	version  store.Version  // of the cell
	loose    store.Version  // of the cell that is put unsynced
	old      store.Version  // one that the cell had before
}

func (w *killWriter) write() {
	w.version, w.loose = w.versionOf(cellKey(w.id)), w.versionOf(looseKey(w.id))
	for {
		switch dice := rand.IntN(100); {
		case dice < 8 && w.end > 0:
			w.append(stale, ownJournal(w.life, w.id), rand.Uint64N(w.end))
		case dice < 13 && w.old != "":
			w.put(staleCell, w.old)
		case dice < 23:
			w.put(toCell, w.version)
		case dice < 26:
			w.put(toLoose, w.loose)
		case dice < 28:
			w.drop()
		case dice < 30:
			w.delete()
		case dice < 50:
			w.span()
		default:
			if last, ok := w.append(toOwn, ownJournal(w.life, w.id), w.end); ok {
				w.end = last
			}
		}
	}
}

// versionOf returns the version of a cell, "" if there is none.
func (w *killWriter) versionOf(key string) store.Version {
	cell, err := w.s.Get(w.ctx, key)
	if err != nil && !errors.Is(err, store.ErrNotFound) {
		giveUp("Get(%q): %v", key, err)
	}
	return cell.Version
}

// span appends to the journal that all writers share, and looks where it ends
// when another was quicker.
func (w *killWriter) span() {
	after := w.spanEnd.Load()
	last, ok := w.append(toSpan, spanning, after)
	if !ok {
		for e, err := range w.s.Read(w.ctx, spanning, after) {
			if err != nil {
				giveUp("Read(%q, after %d): %v", spanning, after, err)
			}
			last = e.Seq
		}
	}
	for now := w.spanEnd.Load(); now < last && !w.spanEnd.CompareAndSwap(now, last); {
		now = w.spanEnd.Load()
	}
}

func (w *killWriter) append(kind, journal string, after uint64) (last uint64, ok bool) {
	count := 1
	if rand.IntN(3) == 0 {
		count = 2 + rand.IntN(7)
	}
	entries := make([][]byte, count)
	for i := range entries {
		entries[i] = killID{w.life, w.id, w.calls + 1, i, count}.bytes()
	}
	w.begin(kind, after, count)
	var err error
	if w.batcher != nil && batched(w.calls) {
		cell := store.Write{Key: paired(w.life, w.id, w.calls), Value: entries[0]}
		last, err = w.batcher.AppendBatch(w.ctx, store.Batch{Journal: journal, After: after, Entries: entries, Cells: []store.Write{cell}})
	} else {
		last, err = w.s.Append(w.ctx, journal, after, entries...)
	}
	return last, w.answered(kind, last, err)
}

func (w *killWriter) put(kind string, prev store.Version) {
	value := killID{w.life, w.id, w.calls + 1, 0, 1}.bytes()
	w.begin(kind, 0, 1)
	if kind == toLoose {
		version, err := store.PutUnsynced(w.ctx, w.s, looseKey(w.id), value, prev)
		if w.answered(kind, 0, err) {
			w.loose = version
		}
		return
	}
	version, err := w.s.Put(w.ctx, cellKey(w.id), value, prev)
	if w.answered(kind, 0, err) {
		w.old, w.version = w.version, version
	}
}

// drop writes a journal and drops it, in one call.
func (w *killWriter) drop() {
	w.begin(toDrop, 0, 1)
	name := doomed(w.life, w.id, w.calls)
	_, err := w.s.Append(w.ctx, name, 0, []byte("x"))
	if err == nil {
		err = w.s.Drop(w.ctx, name)
	}
	w.answered(toDrop, 0, err)
}

// delete puts a cell and deletes it, in one call.
func (w *killWriter) delete() {
	w.begin(toDelete, 0, 1)
	name := doomed(w.life, w.id, w.calls)
	version, err := w.s.Put(w.ctx, name, []byte("x"), "")
	if err == nil {
		err = w.s.Delete(w.ctx, name, version)
	}
	w.answered(toDelete, 0, err)
}

func (w *killWriter) begin(kind string, after uint64, count int) {
	w.calls++
	fmt.Printf("%sbegin %d %d %s %d %d\n", killMark, w.id, w.calls, kind, after, count)
}

// answered says what became of a call and reports whether it was accepted.
func (w *killWriter) answered(kind string, last uint64, err error) bool {
	switch {
	case err == nil:
		fmt.Printf("%sack %d %d %d\n", killMark, w.id, w.calls, last)
		w.refused = 0
		return true
	case !errors.Is(err, store.ErrConflict):
		giveUp("writer %d, call %d (%s): %v, want success or a conflict", w.id, w.calls, kind, err)
	case kind == toOwn || kind == toCell || kind == toLoose:
		if w.refused++; w.refused > 100 {
			giveUp("writer %d is the only one for its journal and cell, and was refused 100 times in a row: %v", w.id, err)
		}
	}
	fmt.Printf("%sconflict %d %d\n", killMark, w.id, w.calls)
	return false
}

package migrate

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"iter"
	"strings"

	"github.com/perdure/perdure/internal/clock"
	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/journal"
	"github.com/perdure/perdure/internal/threads"
	"github.com/perdure/perdure/store"
)

// page is the number of names or cells to read at a time. Reading in pages, no loop
// over one store is open while the other is written.
const page = 256

// journals calls see with the name of every journal of the source, of so many at
// most, and returns how often it returned true.
func (m *migration) journals(ctx context.Context, most int, see func(ctx context.Context, name string) (bool, error)) (int, error) {
	changed, seen := 0, 0
	for after := ""; ; {
		var names []string
		for name, err := range m.from.Journals(ctx, after) {
			if err != nil {
				return changed, err
			}
			if names = append(names, name); len(names) == page {
				break
			}
		}
		for _, name := range names {
			if err := m.held(ctx); err != nil {
				return changed, err
			}
			did, err := see(ctx, name)
			if errors.Is(err, store.ErrDropped) {
				did, err = false, m.dropLike(ctx, name)
			}
			if err != nil {
				return changed, fmt.Errorf("journal %q: %w", name, err)
			}
			if did {
				changed++
			}
			after = name
			m.progress.Journals++
			m.tell()
		}
		if seen += len(names); len(names) < page || seen >= most {
			return changed, nil
		}
	}
}

// dropLike drops a journal of the target if it was dropped in the source.
func (m *migration) dropLike(ctx context.Context, name string) error {
	for _, err := range m.from.Read(ctx, name, 0) {
		if errors.Is(err, store.ErrDropped) {
			return m.to.Drop(ctx, name)
		}
		if err != nil {
			return err
		}
		return fmt.Errorf("%w: it was dropped in the target, but not in the source", fault.ErrInvalid)
	}
	return nil
}

// copyJournal appends the entries that a journal of the target lacks.
func (m *migration) copyJournal(ctx context.Context, name string) (bool, error) {
	_, err := m.compare(ctx, name)
	return false, err
}

// moveJournal copies a journal to its end and closes it with a `moved` entry, unless
// it has one. It reports whether it has written one.
func (m *migration) moveJournal(ctx context.Context, name string) (bool, error) {
	for {
		end, err := m.compare(ctx, name)
		if err != nil || end.moved || end.seq == 0 || !isThread(name) {
			return false, err
		}
		e := journal.Entry{Kind: journal.Moved, ID: journal.NewID(), Time: clock.Micros()}
		data, err := e.EncodeBody(end.head, &journal.Body{Name: m.mark.To})
		if err != nil {
			return false, err
		}
		_, err = store.AppendOnce(ctx, m.from, name, end.seq, data)
		if err == nil {
			return true, nil
		}
		if !errors.Is(err, store.ErrConflict) || ctx.Err() != nil {
			return false, err
		}
	}
}

func isThread(name string) bool { return strings.HasPrefix(name, threads.JournalKey("")) }

// end is where a journal of the source ends.
type end struct {
	seq   uint64 // of the last entry to copy, in the journal itself
	head  journal.Hash
	moved bool // a `moved` entry follows
}

// compare reads a journal from both stores and appends to the target what it lacks.
// What the target has must be the same as in the source. It verifies the hash chain of
// a thread.
func (m *migration) compare(ctx context.Context, name string) (end, error) {
	var last end
	theirs, stop := iter.Pull2(m.to.Read(ctx, name, 0))
	defer stop()
	w := &appender{to: m.to, journal: name}
	for line, err := range m.from.Read(ctx, name, 0) {
		if err != nil {
			return last, err
		}
		if isThread(name) {
			e, err := last.follow(line)
			if err != nil {
				return last, fmt.Errorf("%w: entry %d: %w", fault.ErrCorrupt, line.Seq, err)
			}
			if e.Kind == journal.Moved {
				last.moved = true // ignore what an older worker may have written after it
				break
			}
			last.head = e.Hash
		}
		last.seq = line.Seq
		if w.behind {
			if err := w.add(ctx, line); err != nil {
				return last, err
			}
			continue
		}
		their, err, ok := theirs()
		switch {
		case err != nil:
			return last, err
		case !ok:
			w.behind, w.seq = true, line.Seq-1
			if err := w.add(ctx, line); err != nil {
				return last, err
			}
		case !bytes.Equal(their.Data, line.Data):
			return last, fmt.Errorf("%w: entry %d of the target differs from that of the source; migrate to an empty store", fault.ErrInvalid, line.Seq)
		}
	}
	if w.behind {
		if err := w.flush(ctx); err != nil {
			return last, err
		}
		return m.compare(ctx, name) // read back what was written
	}
	if more, err, ok := theirs(); err != nil {
		return last, err
	} else if ok {
		return last, fmt.Errorf("%w: the target has an entry %d, which the source lacks; migrate to an empty store", fault.ErrInvalid, more.Seq)
	}
	return last, nil
}

// follow decodes the entry after l. The first entry of a fork follows an entry of
// another thread, whose hash is in its body.
func (l *end) follow(line store.Entry) (journal.Entry, error) {
	prev := l.head
	if l.seq == 0 {
		e, err := journal.Peek(line.Seq, line.Data)
		if err != nil {
			return e, err
		}
		if e.Kind == journal.Forked {
			b, err := e.Read()
			switch {
			case err != nil || b.From == nil:
				return e, errors.New("a fork of nothing")
			case b.From.Head == "": // an old fork: verify checks its chain
				return e, nil
			}
			if err := prev.UnmarshalText([]byte(b.From.Head)); err != nil {
				return e, err
			}
		}
	}
	return journal.Decode(prev, line.Seq, line.Data)
}

// appender appends entries to a journal, as many at a time as a store accepts.
type appender struct {
	to      store.Store
	journal string
	behind  bool
	seq     uint64 // of the last entry in the target
	batch   [][]byte
	size    int
}

func (w *appender) add(ctx context.Context, line store.Entry) error {
	if len(w.batch) == store.MaxBatch || len(w.batch) > 0 && w.size+len(line.Data) > store.MaxEntry {
		if err := w.flush(ctx); err != nil {
			return err
		}
	}
	w.batch, w.size = append(w.batch, line.Data), w.size+len(line.Data)
	return nil
}

func (w *appender) flush(ctx context.Context) error {
	if len(w.batch) == 0 {
		return nil
	}
	last, err := store.AppendOnce(ctx, w.to, w.journal, w.seq, w.batch...)
	w.seq, w.batch, w.size = last, w.batch[:0], 0
	return err
}

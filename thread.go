package perdure

import (
	"context"
	"errors"
	"fmt"
	"iter"

	"github.com/perdure/perdure/internal/clock"
	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/host"
	"github.com/perdure/perdure/internal/journal"
	"github.com/perdure/perdure/internal/tree"
	"github.com/perdure/perdure/store"
)

// opened is a thread as its journal tells it, with the trees of the runs that
// may still be executed.
type opened struct {
	name   string
	thread *journal.Thread
	trees  map[uint64]*tree.Tree

	rewinds  []rewind // that were folded, oldest first
	snapshot uint64   // sequence of the snapshot from which it was read, 0 for none
	lacks    bool     // the snapshot does not have what an entry behind it needs
	bytes    int64    // of the entries that were folded
}

// read folds a journal. Beside ErrCorrupt it returns the thread up to the last
// good entry. What a newer version wrote is not an error here: the thread says
// that it is foreign. A thread that was erased is ErrErased.
func (c *core) read(ctx context.Context, name string) (*opened, error) {
	return c.readAt(ctx, name, 0)
}

// readAt folds a journal up to a sequence, if that is not 0.
func (c *core) readAt(ctx context.Context, name string, upto uint64) (*opened, error) {
	if o := c.restored(ctx, name, upto); o != nil {
		err := c.readMore(ctx, o, upto)
		if !o.lacks && !errors.Is(err, fault.ErrCorrupt) {
			return o, err
		}
		// What the journal says without the snapshot is what counts.
	}
	o := emptyThread(name)
	err := c.readMore(ctx, o, upto)
	if upto == 0 && errors.Is(err, fault.ErrCorrupt) {
		c.tellDamage(ctx, o)
	}
	return o, err
}

// readMore folds what was appended since, up to a sequence if that is not 0.
func (c *core) readMore(ctx context.Context, o *opened, upto uint64) error {
	bad := (*store.CorruptError)(nil)
	if err := c.place(ctx, o); errors.As(err, &bad) {
		return c.damaged(ctx, o, err)
	} else if err != nil {
		return err
	}
	scale := host.ScaleOf(ctx)
	for line, err := range c.entries(ctx, o.name, o.thread.Seq, upto) {
		if err != nil {
			if errors.As(err, &bad) {
				return c.damaged(ctx, o, err)
			}
			return err
		}
		o.bytes += int64(len(line.Data))
		if err := scale.Fold(ctx, o.bytes); err != nil {
			return err
		}
		e, err := journal.Decode(o.thread.Head, line.Seq, line.Data)
		if errors.Is(err, journal.ErrNewer) {
			o.thread.Foreign = fmt.Sprintf("entry %d is %v", line.Seq, err)
			return nil
		}
		if err == nil && line.Seq != o.thread.Seq+1 {
			err = fmt.Errorf("it follows entry %d", o.thread.Seq)
		}
		if err == nil {
			err = c.fold(ctx, o, e)
		}
		if err != nil {
			if reading := (*readError)(nil); errors.As(err, &reading) {
				return reading.error
			}
			return c.damaged(ctx, o, fmt.Errorf("entry %d: %w", line.Seq, err))
		}
	}
	if o.thread.Erased {
		return &fault.ErasedError{Thread: o.thread.ID}
	}
	return nil
}

// readAhead reads a journal, and lets the store read on while what it has read
// is folded once the journal turns out to be long.
func (c *core) readAhead(ctx context.Context, journal string, after uint64) iter.Seq2[store.Entry, error] {
	const long, batch, batchBytes = 512, 128, 64 << 10 // what is read ahead is in memory for each reader
	type item struct {
		line store.Entry
		err  error
	}
	return func(yield func(store.Entry, error) bool) {
		n := 0
		for line, err := range c.store.Read(ctx, journal, after) {
			if !yield(line, err) || err != nil {
				return
			}
			after = line.Seq
			if n++; n == long {
				break
			}
		}
		if n < long {
			return
		}
		batches, quit := make(chan []item, 4), make(chan struct{})
		defer func() { // the reader is done before this returns
			close(quit)
			for range batches {
			}
		}()
		go func() {
			defer close(batches)
			list, size := make([]item, 0, batch), 0
			send := func() bool {
				select {
				case batches <- list:
					list, size = make([]item, 0, batch), 0
					return true
				case <-quit:
					return false
				}
			}
			for line, err := range c.store.Read(ctx, journal, after) {
				list, size = append(list, item{line, err}), size+len(line.Data)
				if (len(list) == batch || size >= batchBytes) && !send() {
					return
				}
			}
			send()
		}()
		for list := range batches {
			for _, it := range list {
				if !yield(it.line, it.err) {
					return
				}
			}
		}
	}
}

// fold adds an entry to a thread and its trees.
func (c *core) fold(ctx context.Context, o *opened, e journal.Entry) error {
	if e.Kind != journal.Rewound {
		return errors.Join(o.thread.Apply(e), o.grow(e))
	}
	b, err := e.Read()
	if err != nil {
		return fmt.Errorf("its body: %w", err)
	}
	past, err := c.past(ctx, o, b.At)
	if err != nil {
		return &readError{err}
	}
	kept := o.thread.Kept()
	if err := o.thread.Rewind(e, past.thread); err != nil {
		return err
	}
	o.trees, o.rewinds = past.trees, append(o.rewinds, rewind{e, b, kept})
	o.rewound(b)
	return nil
}

// readError is an error of reading on the way of folding, which says nothing
// about the entry that is folded.
type readError struct{ error }

func (e *readError) Unwrap() error { return e.error }

// grow keeps the trees of runs that may be executed.
func (o *opened) grow(e journal.Entry) error {
	if e.Kind == journal.Queued {
		o.trees[e.Seq] = tree.New()
		return nil
	}
	if e.Kind == journal.Forked {
		b, err := e.Read()
		for n, t := range o.trees {
			if r := o.thread.Run(n); r != nil && r.Begun() {
				t.Fork(b)
				t.Tell(o.thread, n)
			} // what has not begun finds the changes in the thread's state
		}
		return err
	}
	t := o.trees[e.Run]
	if t == nil {
		o.lacks = o.lacks || o.snapshot > 0 && e.Kind == journal.Retried
		return nil
	}
	if r := o.thread.Run(e.Run); r != nil && (r.Status == journal.StatusSucceeded || r.Status == journal.StatusCancelled) {
		delete(o.trees, e.Run)
		return nil
	}
	e.Texts = o.thread.Texts(e)
	err := t.Apply(e)
	t.Tell(o.thread, e.Run)
	return err
}

// rewound makes the trees those of a thread that a rewind has taken back.
func (o *opened) rewound(b journal.Body) {
	for n, t := range o.trees {
		t.Rewind(b)
		t.Tell(o.thread, n)
	}
}

// line is an entry to be, written from outside a pass.
type line struct {
	kind  journal.Kind
	run   uint64
	path  string
	body  journal.Body
	epoch uint64
}

// errNothing ends a change without an append and without an error.
var errNothing = errors.New("nothing to append")

// change appends what decide returns for the thread as it is, again until no
// other writer came between. Flows are those that then have work. It returns
// the thread with the entries folded in. Where the thread turns out to be
// erased, nothing is left of what was written for it before.
func (c *core) change(ctx context.Context, name string, decide func(*journal.Thread) (lines []line, flows []string, err error)) (*opened, []journal.Entry, error) {
	var announced []string
	o, entries, err := c.amend(ctx, name, func(t *journal.Thread) ([]line, []string, error) {
		lines, flows, err := decide(t)
		announced = append(announced, flows...)
		return lines, flows, err
	})
	return o, entries, c.late(ctx, name, err, announced...)
}

func (c *core) amend(ctx context.Context, name string, decide func(*journal.Thread) (lines []line, flows []string, err error)) (*opened, []journal.Entry, error) {
	o, err := c.read(ctx, name)
	if err != nil {
		return o, nil, err
	}
	for {
		t := o.thread
		if t.Foreign != "" {
			return o, nil, fmt.Errorf("%w: thread %s is left alone: %s", fault.ErrNewer, t.ID, t.Foreign)
		}
		lines, flows, err := decide(t)
		if errors.Is(err, errNothing) {
			return o, nil, nil
		}
		if err != nil {
			return o, nil, err
		}
		entries, data, err := writeLines(t, lines)
		if err != nil {
			return o, nil, err
		}
		if err := c.announce(ctx, name, t.Seq+1, flows...); err != nil {
			return o, nil, err
		}
		err = c.append(ctx, name, t, data)
		if err == nil {
			for _, e := range entries {
				if err := c.fold(ctx, o, e); err != nil {
					return o, nil, fmt.Errorf("%w: %w", fault.ErrCorrupt, err)
				}
			}
			return o, entries, nil
		}
		switch {
		case errors.Is(err, store.ErrTooLarge):
			return o, nil, fmt.Errorf("%w: %w", fault.ErrTooLarge, err)
		case !errors.Is(err, store.ErrConflict) || ctx.Err() != nil:
			return o, nil, err
		}
		if err := c.readMore(ctx, o, 0); err != nil {
			return o, nil, err
		}
	}
}

func writeLines(t *journal.Thread, lines []line) ([]journal.Entry, [][]byte, error) {
	entries := make([]journal.Entry, len(lines))
	data := make([][]byte, len(lines))
	prev, now := t.Head, clock.Micros()
	for i, l := range lines {
		body, err := l.body.Encode()
		if err != nil {
			return nil, nil, fmt.Errorf("perdure: %s: %w", l.kind, err)
		}
		entries[i] = journal.Entry{Seq: t.Seq + uint64(i) + 1, Kind: l.kind, ID: journal.NewID(), Time: now,
			Run: l.run, Epoch: l.epoch, Path: l.path, Body: body}
		data[i] = entries[i].Encode(prev)
		prev = entries[i].Hash
	}
	return entries, data, nil
}

// changeThread is change for a thread by its id, which has to exist.
func (r *Runtime) changeThread(ctx context.Context, id string, decide func(*journal.Thread) ([]line, []string, error)) (*opened, []journal.Entry, error) {
	name, err := r.find(ctx, id)
	if err != nil {
		return nil, nil, err
	}
	return r.changeNamed(ctx, name, id, decide)
}

// changeNamed is changeThread for those who have found its name, and have
// written for it.
func (r *Runtime) changeNamed(ctx context.Context, name, id string, decide func(*journal.Thread) ([]line, []string, error)) (*opened, []journal.Entry, error) {
	return r.change(ctx, name, func(t *journal.Thread) ([]line, []string, error) {
		if t.Seq == 0 {
			return nil, nil, fmt.Errorf("%w: %q", fault.ErrNoThread, id)
		}
		return decide(t)
	})
}

// emptyThread returns a thread of which nothing was read yet.
func emptyThread(name string) *opened {
	return &opened{name: name, thread: journal.NewThread(), trees: map[uint64]*tree.Tree{}}
}

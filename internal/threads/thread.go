package threads

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"slices"

	"github.com/perdure/perdure/internal/clock"
	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/journal"
	"github.com/perdure/perdure/internal/tree"
	"github.com/perdure/perdure/store"
)

// Open reads a thread by its id.
func (r *Tenant) Open(ctx context.Context, thread string) (*Opened, error) {
	name, err := r.Find(ctx, thread)
	if err != nil {
		return nil, err
	}
	o, err := r.All.Read(ctx, name)
	if err = r.All.IfArchived(ctx, o, err); err != nil && !errors.Is(err, fault.ErrCorrupt) {
		return nil, err
	}
	switch {
	case err == nil && o.Thread.Seq == 0 && o.Thread.Foreign == "":
		return nil, fmt.Errorf("%w: %q", fault.ErrNoThread, thread)
	}
	return o, err
}

// StatusOf returns the status of the run that matters most: the oldest that has
// not ended, else the newest; "" if there is none.
func StatusOf(t *journal.Thread) journal.Status {
	if run := t.Busy(); run != nil {
		return run.Status
	}
	if len(t.Runs) > 0 {
		return t.Runs[len(t.Runs)-1].Status
	}
	return ""
}

// Output returns the output of a run. It may be stored as the result of one of the
// run's steps.
func (r *Threads) Output(ctx context.Context, o *Opened, run *journal.Run) (json.RawMessage, error) {
	if run.Ref == 0 {
		return r.Load(ctx, o.Name, run.Output)
	}
	b, err := r.BodyAt(ctx, o.Name, run.Ref)
	if err != nil {
		return nil, err
	}
	return r.Load(ctx, o.Name, b.Value)
}

// BodyAt returns the body of one entry of a thread.
func (c *Threads) BodyAt(ctx context.Context, name string, seq uint64) (journal.Body, error) {
	for line, err := range c.Entries(ctx, name, seq-1, seq) {
		if err != nil {
			return journal.Body{}, err
		}
		var e struct{ B json.RawMessage }
		if err := json.Unmarshal(line.Data, &e); err != nil {
			return journal.Body{}, fmt.Errorf("%w: entry %d: %w", fault.ErrCorrupt, line.Seq, err)
		}
		b, err := (&journal.Entry{Body: e.B}).Read()
		if err != nil {
			err = fmt.Errorf("%w: entry %d: %w", fault.ErrCorrupt, line.Seq, err)
		}
		return b, err
	}
	return journal.Body{}, fmt.Errorf("%w: entry %d is missing", fault.ErrCorrupt, seq)
}

// OtherFlows returns the flows of all runs that have not ended, except one.
func OtherFlows(t *journal.Thread, but *journal.Run) []string {
	var flows []string
	for _, r := range slices.Concat(t.OpenRuns(), t.Inbox) {
		if r != but {
			flows = append(flows, r.Flow)
		}
	}
	return flows
}

// Opened is a thread folded from its journal, with the trees of the runs that may
// still be executed.
type Opened struct {
	Name   string
	Thread *journal.Thread
	Trees  map[uint64]*tree.Tree

	rewinds  []rewind // folded so far, oldest first
	snapshot snapshotAt
	Resumed  bool  // it was read from a snapshot or a kept fold, not from its beginning
	Lacks    bool  // that snapshot or fold does not fit the journal, or lacks what a later entry needs
	unproved bool  // it is a kept fold, not yet checked against the journal
	bytes    int64 // of the entries that were folded

	made map[string]store.Cell // the cells that were last written with an entry, see Cells
}

// Read folds a journal. With ErrCorrupt it also returns the thread up to the last
// intact entry. Entries of a newer version are not an error: they set the thread's
// Foreign field. An erased thread is ErrErased.
func (c *Threads) Read(ctx context.Context, name string) (*Opened, error) {
	return c.ReadAt(ctx, name, 0)
}

// ReadAt folds a journal up to a sequence, if that is not 0.
func (c *Threads) ReadAt(ctx context.Context, name string, upto uint64) (*Opened, error) {
	if o := c.Restored(ctx, name, upto); o != nil {
		err := c.ReadMore(ctx, o, upto)
		if !o.Lacks && !errors.Is(err, fault.ErrCorrupt) {
			if err == nil && upto == 0 {
				c.Keep(o)
			}
			return o, err
		}
		// Fold the journal without the snapshot: only that is authoritative.
		c.folds.forget(name)
		c.active.forget(name)
	}
	o := Empty(name)
	err := c.ReadMore(ctx, o, upto)
	if upto == 0 && errors.Is(err, fault.ErrCorrupt) {
		c.MarkDamaged(ctx, o)
	}
	if err == nil && upto == 0 {
		c.Keep(o)
	}
	return o, err
}

// ReadOn folds the entries appended since into a thread and returns it. If the
// snapshot that it was read from turns out not to fit, ReadOn reads the thread from
// its beginning.
func (c *Threads) ReadOn(ctx context.Context, o *Opened) (*Opened, error) {
	err := c.ReadMore(ctx, o, 0)
	if o.Lacks || o.Resumed && errors.Is(err, fault.ErrCorrupt) {
		c.folds.forget(o.Name)
		c.active.forget(o.Name)
		o = Empty(o.Name)
		err = c.ReadMore(ctx, o, 0)
	}
	return o, err
}

// ReadMore folds the entries appended since, up to a sequence if that is not 0. It
// checks a kept fold against its last entry: if the journal has another one, it
// sets Lacks.
func (c *Threads) ReadMore(ctx context.Context, o *Opened, upto uint64) error {
	bad := (*store.CorruptError)(nil)
	if err := c.Place(ctx, o); errors.As(err, &bad) {
		return c.damaged(ctx, o, err)
	} else if err != nil {
		return err
	}
	scale := scaleOf(ctx)
	after := o.Thread.Seq
	if o.unproved {
		after--
	}
	for line, err := range c.Entries(ctx, o.Name, after, upto) {
		if err == nil && o.unproved {
			if e, err := journal.Peek(line.Seq, line.Data); err != nil || e.Seq != o.Thread.Seq || e.Hash != o.Thread.Head {
				break
			}
			o.unproved = false
			continue
		}
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
		e, err := journal.Decode(o.Thread.Head, line.Seq, line.Data)
		if errors.Is(err, journal.ErrNewer) {
			o.Thread.Foreign = fmt.Sprintf("entry %d is %v", line.Seq, err)
			return nil
		}
		if err == nil && line.Seq != o.Thread.Seq+1 {
			err = fmt.Errorf("it follows entry %d", o.Thread.Seq)
		}
		if err == nil {
			err = c.Fold(ctx, o, e)
		}
		if err != nil {
			if reading := (*ReadError)(nil); errors.As(err, &reading) {
				return reading.Err
			}
			return c.damaged(ctx, o, fmt.Errorf("entry %d: %w", line.Seq, err))
		}
	}
	o.Lacks = o.Lacks || o.unproved
	if o.Thread.Erased {
		return &fault.ErasedError{Thread: o.Thread.ID}
	}
	return nil
}

// readAhead reads a journal. Once the journal turns out to be long, the store reads
// ahead while the caller folds.
func (c *Threads) readAhead(ctx context.Context, journal string, after uint64) iter.Seq2[store.Entry, error] {
	const long, batch, batchBytes = 512, 128, 64 << 10 // each reader holds a few batches in memory
	type item struct {
		line store.Entry
		err  error
	}
	return func(yield func(store.Entry, error) bool) {
		n := 0
		for line, err := range c.Store.Read(ctx, journal, after) {
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
		defer func() { // wait for the reader
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
			for line, err := range c.Store.Read(ctx, journal, after) {
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

// Fold adds an entry to a thread and its trees.
func (c *Threads) Fold(ctx context.Context, o *Opened, e journal.Entry) error {
	e.Keep()
	if e.Kind != journal.Rewound {
		return errors.Join(o.Thread.Apply(e), o.Grow(e))
	}
	b, err := e.Read()
	if err != nil {
		return fmt.Errorf("its body: %w", err)
	}
	past, err := c.past(ctx, o, b.At)
	if err != nil {
		return &ReadError{err}
	}
	kept := o.Thread.Kept()
	if err := o.Thread.Rewind(e, past.Thread); err != nil {
		return err
	}
	o.Trees, o.rewinds = past.Trees, append(o.rewinds, rewind{e, b, kept})
	o.rewound(b)
	return nil
}

// ReadError wraps an error of reading other entries while an entry is folded. It
// does not mean that the entry is damaged.
type ReadError struct{ Err error }

func (e *ReadError) Error() string { return e.Err.Error() }

func (e *ReadError) Unwrap() error { return e.Err }

// Line is an entry to be appended from outside a pass.
type Line struct {
	Kind  journal.Kind
	Run   uint64
	Path  string
	Body  journal.Body
	Epoch uint64
}

// ErrNothing is returned by functions that decide on a change, if there is nothing
// to write. It does not reach the caller.
var ErrNothing = errors.New("nothing to append")

// Change appends the lines that decide returns for the current thread, and calls
// decide again whenever another writer came first. Flows are those that have work
// after the append. Change returns the thread with the entries folded in, and
// updates its summary if lists would show a difference. If the thread turns out to
// be erased, it removes what it has written for it.
func (c *Threads) Change(ctx context.Context, name string, decide func(*journal.Thread) (lines []Line, flows []string, err error)) (*Opened, []journal.Entry, error) {
	o, err := c.ReadForest(ctx, name)
	if err != nil {
		return o, nil, c.SweepIfErased(ctx, name, err)
	}
	return c.change(ctx, o, nil, decide)
}

// Begin is Change for a thread that does not exist yet. Its first entries are
// written with its summary and the given cells. A *store.CellConflict means that
// one of these exists: another process has begun a thread.
func (c *Threads) Begin(ctx context.Context, name string, cells []store.Write, decide func(*journal.Thread) (lines []Line, flows []string, err error)) (*Opened, []journal.Entry, error) {
	return c.change(ctx, Empty(name), cells, decide)
}

func (c *Threads) change(ctx context.Context, o *Opened, cells []store.Write, decide func(*journal.Thread) (lines []Line, flows []string, err error)) (*Opened, []journal.Entry, error) {
	var announced []string
	var before Summary
	entries, err := c.amend(ctx, o, cells, func(t *journal.Thread) ([]Line, []string, error) {
		before = summaryOf(t)
		lines, flows, err := decide(t)
		announced = append(announced, flows...)
		return lines, flows, err
	})
	begun := cells != nil && c.batches // the summary was written with the entries
	if err == nil && len(entries) > 0 && !begun && !summaryOf(o.Thread).stays(before) {
		_ = c.Summarise(ctx, o) // if it fails, a worker updates it when the run stops
	}
	if err == nil {
		c.Keep(o)
	}
	return o, entries, c.SweepIfErased(ctx, o.Name, err, announced...)
}

// Amend is Change without what follows the append: it does not update the summary
// afterwards, nor sweep if the thread was erased.
func (c *Threads) Amend(ctx context.Context, name string, decide func(*journal.Thread) (lines []Line, flows []string, err error)) (*Opened, []journal.Entry, error) {
	o, err := c.ReadForest(ctx, name)
	if err != nil {
		return o, nil, err
	}
	entries, err := c.amend(ctx, o, nil, decide)
	return o, entries, err
}

func (c *Threads) amend(ctx context.Context, o *Opened, first []store.Write, decide func(*journal.Thread) (lines []Line, flows []string, err error)) ([]journal.Entry, error) {
	for {
		t := o.Thread
		if err := checkWritable(t); err != nil {
			return nil, err
		}
		lines, flows, err := decide(t)
		if errors.Is(err, ErrNothing) {
			return nil, nil
		}
		if err != nil {
			return nil, err
		}
		entries, data, err := encodeLines(nil, t, lines, createdAt(o.Name))
		if err != nil {
			return nil, err
		}
		var cells []store.Write
		if t.Seq > 0 {
			cells, _ = c.Foreseen(ctx, o, entries)
		} else if first != nil {
			summary, err := c.firstSummary(o.Name, entries)
			if err != nil {
				return nil, err
			}
			cells = slices.Concat(first, summary)
		}
		claimed := lines[len(lines)-1].Kind == journal.Claimed
		switch err := c.append(ctx, o, data, flows, claimed, cells); {
		case err == nil:
			for _, e := range entries {
				if err := c.Fold(ctx, o, e); err != nil {
					return nil, fmt.Errorf("%w: %w", fault.ErrCorrupt, err)
				}
			}
			return entries, nil
		case errors.Is(err, store.ErrTooLarge):
			return nil, fmt.Errorf("%w: %w", fault.ErrTooLarge, err)
		case !errors.Is(err, store.ErrConflict) || errors.As(err, new(*store.CellConflict)) || ctx.Err() != nil:
			return nil, err
		}
		if err := c.ReadMore(ctx, o, 0); err != nil {
			return nil, err
		}
	}
}

// EncodeLines returns the entries that lines become at the end of a thread, and
// their bytes.
func EncodeLines(t *journal.Thread, lines []Line) ([]journal.Entry, [][]byte, error) {
	return AppendLines(nil, t, lines)
}

// AppendLines is EncodeLines, except that it appends the entries to a slice.
func AppendLines(entries []journal.Entry, t *journal.Thread, lines []Line) ([]journal.Entry, [][]byte, error) {
	return encodeLines(entries, t, lines, clock.Micros())
}

// encodeLines is AppendLines, except that it says when the thread was created.
func encodeLines(entries []journal.Entry, t *journal.Thread, lines []Line, created int64) ([]journal.Entry, [][]byte, error) {
	entries = slices.Grow(entries, len(lines))
	data := make([][]byte, len(lines))
	prev, now := t.Head, clock.Micros()
	for i := range lines {
		l := &lines[i]
		e := journal.Entry{Seq: t.Seq + uint64(i) + 1, Kind: l.Kind, ID: journal.NewID(), Time: now,
			Run: l.Run, Epoch: l.Epoch, Path: l.Path}
		if e.Kind == journal.Created {
			e.Time = created
		}
		var err error
		if data[i], err = e.EncodeBody(prev, &l.Body); err != nil {
			return nil, nil, fmt.Errorf("perdure: %s: %w", l.Kind, err)
		}
		entries, prev = append(entries, e), e.Hash
	}
	return entries, data, nil
}

// ChangeID is Change for the thread with an id, which must exist, in a store that
// has not moved.
func (r *Tenant) ChangeID(ctx context.Context, id string, decide func(*journal.Thread) ([]Line, []string, error)) (*Opened, []journal.Entry, error) {
	name, err := r.Find(ctx, id)
	if err != nil {
		return nil, nil, err
	}
	return r.ChangeNamed(ctx, name, id, decide)
}

// ChangeNamed is ChangeID for callers that know the thread's name.
func (r *Tenant) ChangeNamed(ctx context.Context, name, id string, decide func(*journal.Thread) ([]Line, []string, error)) (*Opened, []journal.Entry, error) {
	if err := r.All.CheckMoved(ctx); err != nil {
		return nil, nil, err
	}
	o, entries, err := r.All.Change(ctx, name, func(t *journal.Thread) ([]Line, []string, error) {
		if t.Seq == 0 {
			return nil, nil, fmt.Errorf("%w: %q", fault.ErrNoThread, id)
		}
		return decide(t)
	})
	return o, entries, r.All.IfArchived(ctx, o, err)
}

// Empty returns a thread that has not been read yet.
func Empty(name string) *Opened { return Seen(name, journal.NewThread()) }

// Seen returns a thread without trees, for callers that only look at it.
func Seen(name string, t *journal.Thread) *Opened {
	return &Opened{Name: name, Thread: t, Trees: map[uint64]*tree.Tree{}}
}

// PickRun returns the run with an id, the newest run for "".
func PickRun(t *journal.Thread, id string) (*journal.Run, error) {
	if id == "" && len(t.Runs) > 0 {
		return t.Runs[len(t.Runs)-1], nil
	}
	if run := t.RunByID(id); run != nil {
		return run, nil
	}
	return nil, fmt.Errorf("%w: %q on thread %s", fault.ErrRunNotFound, id, t.ID)
}

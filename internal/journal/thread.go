package journal

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync/atomic"
)

// Thread is the fold of a journal up to Seq.
type Thread struct {
	Seq  uint64 `json:",omitzero"`
	Head Hash   `json:",omitzero"`
	Time int64  `json:",omitzero"` // of the last entry

	Bytes int64 `json:",omitzero"` // of its entries, approximately

	ID      string            `json:",omitzero"`
	Tenant  string            `json:",omitzero"`
	User    string            `json:",omitzero"`
	Title   string            `json:",omitzero"`
	Meta    map[string]string `json:",omitzero"`
	Created int64             `json:",omitzero"`

	Epoch  uint64 `json:",omitzero"` // of the newest claim
	Worker string `json:",omitzero"` // the worker that holds it, "" for none
	Runs   []*Run `json:"-"`         // in the order in which they were queued
	Inbox  []*Run `json:"-"`         // steering that the active run has not taken yet

	State   map[string]Item  `json:"-"`         // as of now, all runs in journal order
	Deps    map[string]Value `json:",omitzero"` // newest dump of each dep
	Spent   map[string]int64 `json:",omitzero"`
	Signals []Pending        `json:",omitzero"` // not received yet
	Blobs   map[string]Blob  `json:",omitzero"` // files that it was given, by their digest; never changed in place

	Large  int64 `json:",omitzero"` // bytes of the blobs that its entries refer to, counted as often as they do
	Shared int64 `json:",omitzero"` // of Bytes and Large, those that belong to the thread that it was forked from

	Base    uint64  `json:",omitzero"` // entries up to this sequence belong to the thread that it was forked from
	Fork    *Origin `json:",omitzero"` // nil if it is not a fork
	Import  *Origin `json:",omitzero"` // the newest import of it or of a thread that it was forked from, nil for none
	Parent  *Origin `json:",omitzero"` // the run that spawned it, nil if it is not a child
	Rewinds int     `json:",omitzero"`

	Imported int64 `json:",omitzero"` // time of Import
	Erased   bool  `json:",omitzero"`

	Moved string `json:",omitzero"` // the name of the store where it continues, "" if it has not moved

	Archived bool   `json:"-"` // it was erased because it is in the archive
	Foreign  string `json:"-"` // why this binary must not write to the thread, "" if it may
	shared   bool   // State and Deps are the base of a run
	byID     table[*Run]
	asks     table[*Ask]   // by id, open and closed
	heard    table[uint64] // sequences of the signals that have arrived, by key
	open     []*Run        // those of Runs that have not ended
	ended    []*Run        // those of Runs that have ended and are not past, see clone.go
	weight   int64
	held     *atomic.Int64 // bytes that its links and those of its clones keep, see Link.Keep
}

// Pending is a signal that no run has received yet.
type Pending struct {
	Seq   uint64           `json:",omitzero"`
	Name  string           `json:",omitzero"`
	Value Value            `json:",omitzero"`
	Fail  *Failure         `json:",omitzero"` // of a child
	Spend map[string]int64 `json:",omitzero"` // by a child
}

// Ask is a question of a run.
type Ask struct {
	ID       string   `json:",omitzero"`
	Run      *Run     `json:"-"`
	Path     string   `json:",omitzero"`
	Seq      uint64   `json:",omitzero"`
	Time     int64    `json:",omitzero"`
	Due      int64    `json:",omitzero"` // when it expires, 0 for never
	Question Question `json:",omitzero"`
	Progress []Note   `json:",omitzero"` // newest last
	Answer   *Answer  `json:",omitzero"`
	AnswerAt int64    `json:",omitzero"`
	Expired  bool     `json:",omitzero"`
	Closed   bool     `json:",omitzero"` // its step or run ended without an answer
}

// Open reports whether the ask can be answered.
func (a *Ask) Open() bool { return a.Answer == nil && !a.Expired && !a.Closed }

// Note is a value or failure with the time of its entry.
type Note struct {
	Seq   uint64   `json:",omitzero"`
	Time  int64    `json:",omitzero"`
	Path  string   `json:",omitzero"`
	Value Value    `json:",omitzero"`
	Fail  *Failure `json:",omitzero"`
}

// NewThread returns the thread of an empty journal.
func NewThread() *Thread {
	return &Thread{State: map[string]Item{}, Deps: map[string]Value{}, Spent: map[string]int64{}, held: new(atomic.Int64)}
}

// Run returns the run that was queued by the entry at n.
func (t *Thread) Run(n uint64) *Run {
	i, ok := slices.BinarySearchFunc(t.Runs, n, func(r *Run, n uint64) int { return cmp.Compare(r.N, n) })
	if !ok {
		return nil
	}
	return t.Runs[i]
}

// RunByID returns the newest run or steering input with an id, nil if there is none.
func (t *Thread) RunByID(id string) *Run { return t.byID.get(id) }

// Ask returns the ask with an id, open or closed, nil if there is none.
func (t *Thread) Ask(id string) *Ask { return t.asks.get(id) }

func byNumber(a, b *Run) int { return cmp.Compare(a.N, b.N) }

// Read decodes the next entry and applies it. An error leaves the thread unchanged.
func (t *Thread) Read(seq uint64, data []byte) (Entry, error) {
	e, err := Decode(t.Head, seq, data)
	if err == nil && seq != t.Seq+1 {
		err = fmt.Errorf("entry %d follows %d", seq, t.Seq)
	}
	if err != nil {
		return e, err
	}
	return e, t.Apply(e)
}

// Apply folds one entry into the thread.
func (t *Thread) Apply(e Entry) error {
	if !e.Kind.Known() {
		t.Foreign = fmt.Sprintf("entry %d is of kind %q, which this version does not know", e.Seq, e.Kind)
		t.advance(e)
		return nil
	}
	body, err := e.Read()
	if err == nil {
		err = body.check(e.Kind)
	}
	if err != nil {
		return fmt.Errorf("its body: %w", err)
	}
	switch {
	case e.Kind == Claimed && e.Epoch <= t.Epoch:
		return fmt.Errorf("a claim of epoch %d follows epoch %d", e.Epoch, t.Epoch)
	case e.Epoch != 0 && e.Kind != Claimed && e.Epoch != t.Epoch:
		return fmt.Errorf("an entry of epoch %d follows the claim of epoch %d", e.Epoch, t.Epoch)
	}
	if e.Kind == Rewound {
		return errors.New("a rewind needs the thread as it was: see Rewind")
	}
	if e.Run == 0 {
		t.applyThread(e, &body)
	} else if r := t.Run(e.Run); r == nil {
		return fmt.Errorf("it refers to run %d, which does not exist", e.Run)
	} else {
		t.applyRun(r, e, &body)
	}
	t.attach(body.Blobs)
	t.Large += body.large()
	t.weigh(e, &body)
	t.advance(e)
	return nil
}

func (t *Thread) advance(e Entry) {
	t.Seq, t.Head, t.Time = e.Seq, e.Hash, max(t.Time, e.Time)
	t.Bytes += headRoom + int64(len(e.Path)+len(e.Body))
}

func (t *Thread) applyThread(e Entry, b *Body) {
	switch e.Kind {
	case Created:
		t.ID, t.Tenant, t.User, t.Created, t.Parent = b.Thread, b.Tenant, b.User, e.Time, b.From
		t.change(e, b)
		fallthrough
	case Metadata:
		if b.Title != nil {
			t.Title = *b.Title
		}
		for k, v := range b.Meta {
			if t.Meta == nil {
				t.Meta = map[string]string{}
			}
			if v == "" {
				delete(t.Meta, k)
			} else {
				t.Meta[k] = v
			}
		}
	case Queued:
		r := &Run{N: e.Seq, ID: b.ID, Flow: b.Flow, Policy: b.Policy, Key: b.Key, Budget: b.Budget,
			Trace: b.Trace, By: b.By, Input: b.Value.placed(placeOf(e.Seq, 0)), Created: e.Time, Status: StatusQueued}
		t.byID.set(r.ID, r)
		if r.Policy == PolicySteer && t.Busy() != nil {
			t.Inbox = append(t.Inbox, r)
		} else {
			t.Runs, t.open = append(t.Runs, r), append(t.open, r)
		}
	case Signal:
		t.hear(b.Key, e.Seq)
		t.Signals = append(t.Signals, Pending{Seq: e.Seq, Name: b.Name, Value: b.Value, Fail: b.Fail, Spend: b.Spend})
	case Forked:
		t.fork(e, b)
	case Erased:
		t.Erased, t.Archived = true, b.Name == ToArchive
	case Moved:
		t.Moved = b.Name
	}
}

// hear records the key of a signal, so that sending it again has no effect.
func (t *Thread) hear(key string, seq uint64) {
	if key != "" && t.heard.get(key) == 0 {
		t.heard.set(key, seq)
	}
}

// Heard reports whether a signal with the given key has arrived.
func (t *Thread) Heard(key string) bool { return t.heard.get(key) != 0 }

// HeardAt returns the sequence of the signal with the given key, 0 if there is none.
func (t *Thread) HeardAt(key string) uint64 { return t.heard.get(key) }

// Receiver returns the run and path of the oldest receive that waits for a signal,
// nil if there is none.
func (t *Thread) Receiver(name string) (*Run, string) {
	var run *Run
	var path string
	var oldest uint64
	for _, r := range t.open {
		if r.Cancelled {
			continue
		}
		for p, w := range r.Waits {
			if w.Kind == Waiting && w.Signal == name && (run == nil || w.Seq < oldest) {
				run, path, oldest = r, p, w.Seq
			}
		}
	}
	return run, path
}

// ownState copies State and Deps before they change if a run shares them.
func (t *Thread) ownState() {
	if t.shared {
		t.State, t.Deps, t.shared = maps.Clone(t.State), maps.Clone(t.Deps), false
	}
}

func (t *Thread) commit(r *Run, e Entry, b *Body) {
	t.change(e, b)
	if len(b.Deps) > 0 {
		t.ownState()
	}
	for key, v := range b.Deps {
		t.weight += int64(len(v.JSON) - len(t.Deps[key].JSON))
		t.Deps[key] = v
		if r.Dumps == nil {
			r.Dumps = map[string]Value{}
		}
		r.Dumps[key] = v
	}
	for unit, n := range b.Spend {
		t.Spent[unit] = Sum(t.Spent[unit], n)
		if r.Spent == nil {
			r.Spent = map[string]int64{}
		}
		r.Spent[unit] = Sum(r.Spent[unit], n)
	}
}

// Active returns the oldest run that has begun and not ended.
func (t *Thread) Active() *Run {
	for _, r := range t.open {
		if r.Begun() {
			return r
		}
	}
	return nil
}

// Busy returns the oldest run that has not ended.
func (t *Thread) Busy() *Run {
	if len(t.open) == 0 {
		return nil
	}
	return t.open[0]
}

// Next returns the run to execute now, or else the time at which a timer makes one
// due, 0 for never. The function fits reports whether the caller's code may try a
// blocked run.
func (t *Thread) Next(now int64, fits func(*Run) bool) (*Run, int64) {
	if t.Foreign != "" || t.Moved != "" {
		return nil, 0
	}
	var due int64
	active := false
	for _, r := range t.open {
		if r.Status == StatusRunning {
			return r, now
		}
	}
	for _, r := range t.open {
		switch {
		case r.Begun():
			active = true
			if r.Held {
				continue
			}
			if r.Status == StatusBlocked && !r.Cancelled && fits(r) {
				return r, now
			}
			if r.Status != StatusSuspended && r.Status != StatusQueued && !r.Cancelled {
				continue
			}
			if r.Wake {
				return r, now
			}
			if at := r.Due(); at != 0 && at <= now {
				return r, now
			} else if at != 0 && (due == 0 || at < due) {
				due = at
			}
		case r.Status == StatusQueued && (!active || r.Policy == PolicyBeside):
			return r, now
		case r.Status != StatusQueued:
			active = true // paused before it began: the runs after it wait
		}
	}
	return nil, due
}

package journal

import (
	"cmp"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"sync"
)

// snapshotFormat is the version of the format of snapshots. Raise it when the fold
// of the same entries changes, so that older snapshots are not used.
const snapshotFormat = 4

// snapshot is the JSON form of a thread: the thread itself, and separately those of
// its parts that share pointers. The hash of the JSON precedes it.
type snapshot struct {
	Thread             *Thread
	Runs, Inbox, Taken []keptRun                  `json:",omitzero"` // Taken: steering that runs took from the inbox
	Asks               map[uint64]map[string]*Ask `json:",omitzero"` // by the number of the run, then by id
	State              map[string]flatItem        `json:",omitzero"`
	Heard              map[string]uint64          `json:",omitzero"` // sequences of signals by key
}

// keptRun is a run in a short form, since snapshots of threads with many short runs
// consist of little else. Same has a bit for each common field that is equal to that
// of the previous run and therefore left out. Far holds sequences and times as
// differences. The run is embedded only for its JSON.
type keptRun struct {
	*Run
	Input  keptValue `json:",omitzero"` // shadows that of the run, as does Output
	Output keptValue `json:",omitzero"`
	Same   uint64    `json:",omitzero"`
	Far    [6]int64  `json:",omitzero"`
}

// flatItem is an Item with a list in place of its links, whose JSON would nest too
// deeply.
type flatItem struct {
	Base keptValue   `json:",omitzero"`
	Tail []keptValue `json:",omitzero"`
	Text bool        `json:",omitzero"`
}

// Snapshot returns the bytes from which Restore rebuilds the thread. It returns an
// error if a run is active, or if the thread has entries that this binary does not
// understand. It leaves out what only a retry of an ended run needs: its base and
// its dumps. Long values of the state, inputs and outputs stay in the journal and
// are restored as their places. Other values are restored as compact JSON, as they
// were written to the journal.
func (t *Thread) Snapshot() ([]byte, error) {
	switch r := t.Active(); {
	case r != nil:
		return nil, fmt.Errorf("no snapshot: run %s is active", r.ID)
	case t.Foreign != "":
		return nil, fmt.Errorf("no snapshot: %s", t.Foreign)
	}
	s := snapshot{Thread: t, Runs: keepRuns(t.Runs), Inbox: keepRuns(t.Inbox), Taken: keepRuns(t.taken()),
		Asks: map[uint64]map[string]*Ask{}, State: map[string]flatItem{}}
	s.Heard = maps.Collect(t.heard.all())
	for key, item := range t.State {
		flat := flatItem{Base: keptValue(item.Base), Text: item.Text}
		for _, v := range item.Values() {
			flat.Tail = append(flat.Tail, keptValue(v))
		}
		s.State[key] = flat
	}
	for id, a := range t.asks.all() {
		if s.Asks[a.Run.N] == nil {
			s.Asks[a.Run.N] = map[string]*Ask{}
		}
		s.Asks[a.Run.N][id] = a
	}
	data, err := encode(s)
	if err != nil {
		return nil, fmt.Errorf("no snapshot: %w", err)
	}
	return append([]byte(snapshotHash(data).String()), data...), nil
}

// Restore returns the thread of a snapshot. An error means that the snapshot is
// damaged, or was written by a binary that folds or keeps other things than this
// one; the thread must then be folded from its journal.
func Restore(data []byte) (*Thread, error) {
	if len(data) < hashSize || snapshotHash(data[hashSize:]).String() != string(data[:hashSize]) {
		return nil, errors.New("the snapshot is damaged or of another format")
	}
	t := NewThread()
	s := snapshot{Thread: t}
	if err := json.Unmarshal(data[hashSize:], &s); err != nil {
		return nil, fmt.Errorf("the snapshot is damaged: %w", err)
	}
	t.Runs, t.Inbox = restoreRuns(s.Runs), restoreRuns(s.Inbox)
	all := slices.Concat(t.Runs, t.Inbox, restoreRuns(s.Taken))
	slices.SortFunc(all, byNumber)
	for _, r := range all {
		t.byID.set(r.ID, r) // the newest run with an id wins
	}
	t.weight = 3*int64(len(data)) + 1024*int64(len(all)) // including Go's overhead
	for _, r := range t.Runs {
		if !r.Status.Final() {
			t.open = append(t.open, r)
		}
	}
	for key, flat := range s.State {
		item := Item{Base: Value(flat.Base), Text: flat.Text}
		for _, v := range flat.Tail {
			item.Tail = &Link{Value: Value(v), Prev: item.Tail, held: t.held}
		}
		t.State[key] = item
	}
	for n, asks := range s.Asks {
		r := t.Run(n)
		if r == nil {
			return nil, fmt.Errorf("the snapshot has asks of run %d, which does not exist", n)
		}
		for id, a := range asks {
			t.asks.set(id, a)
			a.Run, r.asks = r, append(r.asks, a)
		}
		slices.SortFunc(r.asks, func(a, b *Ask) int { return cmp.Compare(a.Seq, b.Seq) })
	}
	for key, seq := range s.Heard {
		t.hear(key, seq)
	}
	t.Rest()
	return t, nil
}

// common returns pointers to the fields that runs of a thread often have in common.
// Their values are never changed in place, so runs may share them.
func (r *Run) common() []any {
	return []any{&r.Flow, &r.Policy, &r.Budget, &r.By, &r.Status, &r.Version, &r.Claims, &r.Steps, &r.Last, &r.Plan, &r.PlanAt, &r.Silent}
}

func keepRuns(runs []*Run) []keptRun {
	kept := make([]keptRun, len(runs))
	before := &Run{}
	for i, r := range runs {
		run := *r
		if r.Status.Final() {
			run.Dumps = nil
		}
		kept[i] = keptRun{Run: &run, Input: keptValue(r.Input), Output: keptValue(r.Output), Far: run.far(before)}
		was := before.common()
		for k, field := range run.common() {
			if reflect.DeepEqual(field, was[k]) {
				kept[i].Same |= 1 << k
				reflect.ValueOf(field).Elem().SetZero()
			}
		}
		before = r
	}
	return kept
}

// far returns the sequences and times of a run as differences from each other or
// from those of the previous run, and clears them.
func (r *Run) far(before *Run) [6]int64 {
	far := [6]int64{
		int64(r.N - before.N), int64(r.Start - r.N), int64(r.EndSeq - r.N),
		r.Created - before.Created, r.Started - r.Created, r.Ended - r.Created,
	}
	r.N, r.Start, r.EndSeq, r.Created, r.Started, r.Ended = 0, 0, 0, 0, 0, 0
	return far
}

// near restores what far has cleared.
func (r *Run) near(before *Run, far [6]int64) {
	r.N, r.Created = before.N+uint64(far[0]), before.Created+far[3]
	r.Start, r.EndSeq = r.N+uint64(far[1]), r.N+uint64(far[2])
	r.Started, r.Ended = r.Created+far[4], r.Created+far[5]
}

func restoreRuns(kept []keptRun) []*Run {
	runs := make([]*Run, len(kept))
	before := &Run{}
	for i, k := range kept {
		k.Run.Input, k.Run.Output = Value(k.Input), Value(k.Output)
		k.Run.near(before, k.Far)
		was := before.common()
		for j, field := range k.Run.common() {
			if k.Same&(1<<j) != 0 {
				reflect.ValueOf(field).Elem().Set(reflect.ValueOf(was[j]).Elem())
			}
		}
		runs[i], before = k.Run, k.Run
	}
	return runs
}

// taken returns the runs that are only in byID.
func (t *Thread) taken() []*Run {
	elsewhere := map[*Run]bool{}
	for _, r := range slices.Concat(t.Runs, t.Inbox) {
		elsewhere[r] = true
	}
	var taken []*Run
	for _, r := range t.byID.all() {
		if !elsewhere[r] {
			taken = append(taken, r)
		}
	}
	slices.SortFunc(taken, byNumber)
	return taken
}

// snapshotHash covers the shape too, so one check detects both damage and snapshots
// of other binaries.
func snapshotHash(data []byte) (h Hash) {
	d := sha256.New()
	d.Write(snapshotShape())
	d.Write(data)
	d.Sum(h[:0])
	return h
}

// snapshotShape describes everything that this binary folds and keeps. A fold skips
// what it does not know, so a snapshot by another binary may lack what this one
// keeps of the same entries.
var snapshotShape = sync.OnceValue(func() []byte {
	shape := fmt.Append(nil, snapshotFormat, slices.Sorted(maps.Values(kinds)))
	seen := map[reflect.Type]bool{}
	for _, t := range []reflect.Type{reflect.TypeFor[snapshot](), reflect.TypeFor[Body]()} {
		eachField(t, seen, func(of reflect.Type, f reflect.StructField) {
			shape = fmt.Appendf(shape, "%s.%s %s %s\n", of, f.Name, f.Type, f.Tag)
		})
	}
	return shape
})

// eachField visits the fields of a struct and of everything that it holds.
func eachField(t reflect.Type, seen map[reflect.Type]bool, visit func(of reflect.Type, f reflect.StructField)) {
	if seen[t] || t.PkgPath() == "sync/atomic" {
		return
	}
	seen[t] = true
	switch t.Kind() {
	case reflect.Pointer, reflect.Slice, reflect.Map:
		eachField(t.Elem(), seen, visit)
	case reflect.Struct:
		for i := range t.NumField() {
			visit(t, t.Field(i))
			eachField(t.Field(i).Type, seen, visit)
		}
	}
}

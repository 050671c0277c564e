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

// snapshotFormat is the number of the format of snapshots. Raise it when the
// same entries get another meaning: older snapshots are then not used.
const snapshotFormat = 4

// snapshot is a thread in JSON: the thread itself, and those of its parts that
// share pointers in a form that does not. In front of it stands its hash.
type snapshot struct {
	Thread             *Thread
	Runs, Inbox, Taken []keptRun                  `json:",omitzero"` // Taken: steering that runs took out of the inbox
	Asks               map[uint64]map[string]*Ask `json:",omitzero"` // by the number of the run, then by id
	State              map[string]flatItem        `json:",omitzero"`
	Heard              []string                   `json:",omitzero"` // keys of signals
}

// keptRun is a run without those of its common fields that are as in the run
// before it, and with its numbers in a short form. Same has a bit for each of the
// former, Far has how far each of the latter is from another one. The run is
// embedded for its JSON only: snapshots of threads with many short runs consist of
// little else.
type keptRun struct {
	*Run
	Input  keptValue `json:",omitzero"` // in place of those of the run
	Output keptValue `json:",omitzero"`
	Same   uint64    `json:",omitzero"`
	Far    [6]int64  `json:",omitzero"`
}

// flatItem is an Item with a list in place of its links, which would nest too
// deeply.
type flatItem struct {
	Base keptValue   `json:",omitzero"`
	Tail []keptValue `json:",omitzero"`
	Text bool        `json:",omitzero"`
}

// Snapshot returns the bytes from which Restore makes the thread again. It is
// an error if a run is active, or if the thread has entries that another binary
// may understand and this one does not. What only a retry of an ended run needs,
// its base and its dumps, is left out. Long values of the state, inputs and outputs
// stay in the journal: they come back as their places. Other values come back as
// compact JSON, which is how they are written to a journal in the first place.
func (t *Thread) Snapshot() ([]byte, error) {
	switch r := t.Active(); {
	case r != nil:
		return nil, fmt.Errorf("no snapshot: run %s is active", r.ID)
	case t.Foreign != "":
		return nil, fmt.Errorf("no snapshot: %s", t.Foreign)
	}
	s := snapshot{Thread: t, Runs: keepRuns(t.Runs), Inbox: keepRuns(t.Inbox), Taken: keepRuns(t.taken()),
		Asks: map[uint64]map[string]*Ask{}, State: map[string]flatItem{}}
	for key := range t.heard.all() {
		s.Heard = append(s.Heard, key)
	}
	slices.Sort(s.Heard)
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
// damaged, or that the binary that wrote it folds or keeps other things than
// this one; the thread must then be folded from its journal.
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
		t.byID.set(r.ID, r) // the newest has the id
	}
	t.weight = 3*int64(len(data)) + 1024*int64(len(all)) // with what Go adds
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
	for _, key := range s.Heard {
		t.hear(key)
	}
	t.Rest()
	return t, nil
}

// common returns pointers to the fields that runs of a thread often have in
// common. Nothing changes what they point to in place, so runs may share it.
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

// far returns how far the numbers of a run are from each other or from those of the
// run before it, and takes them out of the run.
func (r *Run) far(before *Run) [6]int64 {
	far := [6]int64{
		int64(r.N - before.N), int64(r.Start - r.N), int64(r.EndSeq - r.N),
		r.Created - before.Created, r.Started - r.Created, r.Ended - r.Created,
	}
	r.N, r.Start, r.EndSeq, r.Created, r.Started, r.Ended = 0, 0, 0, 0, 0, 0
	return far
}

// near puts back what far took out.
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

// taken returns the runs that are found by their id only.
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

// snapshotHash covers the shape too, so one check finds both damage and
// snapshots of other binaries.
func snapshotHash(data []byte) (h Hash) {
	d := sha256.New()
	d.Write(snapshotShape())
	d.Write(data)
	d.Sum(h[:0])
	return h
}

// snapshotShape describes everything that this binary folds and keeps. A fold
// skips what it does not know, so a snapshot by another binary may lack what
// this one would have kept of the same entries.
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

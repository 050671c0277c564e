//go:build darwin || freebsd || linux || netbsd || openbsd

package proof_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/journal"
	"github.com/perdure/perdure/internal/tree"
	"github.com/perdure/perdure/store"
)

// chaosReport is what the journals tell about the storm.
type chaosReport struct {
	journals, entries, claims int
	heldKills                 int // that cut off at least one claim
	cut                       int // claims that a kill cut off
	takeovers                 []time.Duration
	late                      []time.Duration // takeovers of suspects, which wait for a worker that is idle
}

func (r *chaosReport) String() string {
	return fmt.Sprintf("%d journals with %d entries and %d claims, of which kills cut off %d (by %d kills); takeovers took %s, and those of suspects %s",
		r.journals, r.entries, r.claims, r.cut, r.heldKills, percentiles(r.takeovers), percentiles(r.late))
}

// percentiles says what a number of times is like.
func percentiles(times []time.Duration) string {
	if len(times) == 0 {
		return "no time, there was none"
	}
	slices.Sort(times)
	at := func(p int) time.Duration {
		return times[min(len(times)-1, len(times)*p/100)].Round(time.Millisecond)
	}
	return fmt.Sprintf("%v (p50), %v (p99), %v (max of %d)", at(50), at(99), at(100), len(times))
}

// chaosThread is what the journal of a thread tells.
type chaosThread struct {
	*journal.Thread
	steps  map[string]int // outcomes by path
	claims []journal.Entry
	by     []string // workers of the claims
	lost   []int    // how many in a row, up to this, were followed by nothing
	closed []bool   // whether their passes ended by themselves
}

// check looks at all that is left of the storm.
func (x *chaosStorm) check() {
	threads := x.read()
	x.report.journals = len(threads)
	if want := 4 * len(x.threads); len(threads) != want {
		x.Errorf("%d threads have %d journals, want %d with those of their children", len(x.threads), len(threads), want)
	}
	for _, in := range x.threads {
		t := threads[in.Name]
		if t == nil {
			x.Errorf("thread %s has no journal", in.Name)
			continue
		}
		run := t.Runs[0]
		var got chaosOutput
		if err := json.Unmarshal(run.Output.JSON, &got); err != nil || run.Status != journal.StatusSucceeded {
			x.Errorf("thread %s: %s, %v", in.Name, run.Status, err)
			continue
		}
		if d := cmp.Diff(chaosWant(in), got); d != "" {
			x.Errorf("thread %s has another output (-want +got):\n%s", in.Name, d)
		}
		x.sameSteps(in.Name, t, slices.Concat(chaosPlain, chaosOnce, []string{"/parcel"}))
		if spent := run.Spent["token"]; spent != int64(10*(len(chaosPlain)+2*len(chaosLegs))) {
			x.Errorf("thread %s spent %d tokens", in.Name, spent)
		}
		for _, c := range run.Children {
			name := in.Name + "-" + strings.TrimPrefix(tree.Names(c.Path), "/")
			child := threads[c.ID]
			if child == nil || len(child.Runs) != 1 {
				x.Errorf("child %s has no journal, or not one run", name)
				continue
			}
			status, steps := perdure.Succeeded, chaosLegs
			if child.Runs[0].Flow == "idler" {
				status, steps = perdure.Cancelled, nil
				delete(child.steps, "/tidy") // if it had begun
			}
			if perdure.Status(child.Runs[0].Status) != status {
				x.Errorf("child %s is %s, want %s", name, child.Runs[0].Status, status)
			}
			x.sameSteps(name, child, steps)
			x.effects(name, child)
		}
		x.effects(in.Name, t)
	}
	x.takeovers(threads)
	x.verify()
}

// read folds all journals, and demands that each epoch is above the one before
// and that nothing of an old one follows a claim.
func (x *chaosStorm) read() map[string]*chaosThread {
	all := map[string]*chaosThread{}
	for name, err := range x.store.Journals(x.Context(), "") {
		if err != nil {
			x.Fatal(err)
		}
		lines, err := store.ReadAll(x.Context(), x.store, name, 0)
		if err != nil {
			x.Fatal(err)
		}
		t := &chaosThread{Thread: journal.NewThread(), steps: map[string]int{}}
		var epoch uint64
		for _, line := range lines {
			e, err := t.Read(line.Seq, line.Data)
			if err != nil {
				x.Fatalf("entry %d of thread %s: %v", line.Seq, t.ID, err)
			}
			b, err := e.Read()
			if err != nil {
				x.Fatalf("entry %d of thread %s: %v", line.Seq, t.ID, err)
			}
			x.report.entries++
			switch {
			case e.Kind == journal.Claimed:
				if e.Epoch <= epoch {
					x.Errorf("entry %d of thread %s claims epoch %d after %d", e.Seq, t.ID, e.Epoch, epoch)
				}
				epoch = e.Epoch
				t.claims, t.by = append(t.claims, e), append(t.by, b.Worker)
				t.lost, t.closed = append(t.lost, 0), append(t.closed, false)
			case e.Kind == journal.Quarantined: // by a worker that has not claimed
			case !e.Kind.Open() && e.Epoch != epoch:
				x.Errorf("entry %d of thread %s is a %s of epoch %d behind the claim of epoch %d", e.Seq, t.ID, e.Kind, e.Epoch, epoch)
			case e.Kind == journal.Suspended || e.Kind == journal.Released || e.Kind == journal.Ended || e.Kind == journal.Blocked:
				if len(t.closed) > 0 {
					t.closed[len(t.closed)-1] = true
				}
			case e.Kind == journal.Step:
				path := tree.Names(e.Path)
				if t.steps[path]++; t.steps[path] > 1 {
					x.Errorf("entry %d of thread %s is outcome %d of %s", e.Seq, t.ID, t.steps[path], path)
				}
			}
			if n := len(t.lost); n > 0 && !e.Kind.Open() {
				t.lost[n-1] = t.Runs[0].Lost()
			}
		}
		x.report.claims += len(t.claims)
		if all[t.ID] != nil || len(t.Runs) != 1 {
			x.Fatalf("thread %s has two journals, or %d runs", t.ID, len(t.Runs))
		}
		all[t.ID] = t
	}
	return all
}

// sameSteps demands that exactly these steps have an outcome.
func (x *chaosStorm) sameSteps(name string, t *chaosThread, want []string) {
	if d := cmp.Diff(slices.Sorted(slices.Values(want)), slices.Sorted(maps.Keys(t.steps))); d != "" {
		x.Errorf("thread %s has recorded other steps (-want +got):\n%s", name, d)
	}
}

// effects demands that what is recorded happened, at-most-once effects once, and
// always under one key.
func (x *chaosStorm) effects(name string, t *chaosThread) {
	lines, err := x.world.lines(name, "")
	if err != nil {
		x.Error(err)
	}
	did, keys := map[string]int{}, map[string]string{}
	for _, l := range lines {
		if l.what == chaosDid || l.what == chaosEffect {
			did[l.path]++
		}
		if keys[l.path] == "" {
			keys[l.path] = l.key
		}
		if keys[l.path] != l.key {
			x.Errorf("step %s of thread %s has the keys %s and %s", l.path, name, keys[l.path], l.key)
		}
	}
	for path := range t.steps {
		switch once := slices.Contains(chaosOnce, path); {
		case path == "/parcel":
		case did[path] == 0:
			x.Errorf("step %s of thread %s is recorded and was never done", path, name)
		case once && did[path] != 1:
			x.Errorf("at-most-once step %s of thread %s was done %d times: %v", path, name, did[path], lines)
		}
	}
}

// takeovers finds the claims that kills cut off, and when others followed.
func (x *chaosStorm) takeovers(threads map[string]*chaosThread) {
	shots := map[string]chaosShot{}
	for _, s := range x.shots {
		for _, id := range s.victim.workers {
			shots[id] = s
		}
	}
	held := map[*member]bool{}
	for _, t := range threads {
		for i, c := range t.claims {
			shot, killed := shots[t.by[i]]
			if !killed || t.closed[i] || shot.at.UnixMicro() < c.Time || i+1 == len(t.claims) {
				continue
			}
			// A claim that was lost before, while its worker was frozen, is none.
			if took := time.UnixMicro(t.claims[i+1].Time).Sub(shot.at); took > 0 {
				held[shot.victim] = true
				x.report.cut++
				if t.lost[i] >= 2 {
					x.report.late = append(x.report.late, took)
					continue
				}
				x.report.takeovers = append(x.report.takeovers, took)
			}
		}
	}
	x.report.heldKills = len(held)
}

// verify has the runtime itself look at all threads that it lists.
func (x *chaosStorm) verify() {
	listed := 0
	for s, err := range x.rt.List(x.Context(), perdure.ListOptions{}) {
		if err != nil {
			x.Fatal(err)
		}
		listed++
		if !s.Status.Final() {
			x.Errorf("thread %s is listed as %s", s.ID, s.Status)
		}
		if v, err := x.rt.Verify(x.Context(), s.ID); err != nil || !v.OK() {
			x.Errorf("Verify of %s: %v, %+v", s.ID, err, v)
		}
	}
	if listed != x.report.journals {
		x.Errorf("%d threads are listed, and there are %d journals", listed, x.report.journals)
	}
}

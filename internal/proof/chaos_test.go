//go:build darwin || freebsd || linux || netbsd || openbsd

package proof_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/journal"
	"github.com/perdure/perdure/internal/kit"
	"github.com/perdure/perdure/store"
)

// chaosQuota is how much of everything there is to be.
type chaosQuota struct {
	kills, stops, terms int
	threads, busy       int // in all, and at a time while there are faults
}

// TestChaos has five processes work on one store, and kills, freezes and
// stops them at random. All threads end with the right output, each step is
// recorded once, effects that may happen once do, and no process writes after
// another took over. With -short they work on one of the stores.
func TestChaos(t *testing.T) {
	for _, scheme := range crewSchemes[:kit.Sized(1, len(crewSchemes), len(crewSchemes))] {
		t.Run(scheme, func(t *testing.T) { chaosOn(t, scheme) })
	}
}

func chaosOn(t *testing.T, scheme string) {
	quota := []chaosQuota{
		{kills: 8, stops: 4, terms: 2, threads: 10, busy: 5},
		{kills: 60, stops: 30, terms: 10, threads: 40, busy: 15},
		{kills: 500, stops: 200, terms: 50, threads: 100, busy: 30},
	}[kit.Sized(0, 1, 2)]
	x := &chaosStorm{crew: newCrew(t, scheme, chaosFlows), quota: quota, seed: rand.Uint64()}
	x.rng = rand.New(rand.NewPCG(x.seed, 0))
	x.world = chaosWorld{dir: x.dir}
	defer func() { t.Log(x) }()
	x.storm()
	x.calm()
	x.check()
}

// chaosStorm is one execution of TestChaos.
type chaosStorm struct {
	*crew
	quota chaosQuota
	seed  uint64
	rng   *rand.Rand
	world chaosWorld
	slots [5]*member

	kills, killsHeld, early   int // early are kills of processes that were not up, which do not count
	stops, stopsHeld, stopped int // stopped is how many are at the moment
	terms                     int
	shots                     []chaosShot
	thaws                     chan *member

	mu          sync.Mutex
	threads     []chaosInput
	open        int
	quarantined int
	waited      int // looks at an ask about an outcome that nobody could answer yet
	failed      error

	report chaosReport
}

// chaosShot is one SIGKILL.
type chaosShot struct {
	at     time.Time
	victim *member
}

func (x *chaosStorm) String() string {
	lost := 0
	for _, m := range x.members {
		m.mu.Lock()
		lost += m.lost
		m.mu.Unlock()
	}
	return fmt.Sprintf("seed %d: %d kills, %d of them of a worker that held a claim, and %d before it was up; "+
		"%d stops past the lease, %d of them of a worker that held a claim; %d terms; %d processes, which lost their lease %d times; "+
		"%d threads; %d runs were quarantined and retried; an outcome was not yet known in %d looks; %s",
		x.seed, x.kills, x.killsHeld, x.early, x.stops, x.stopsHeld, x.terms, len(x.members), lost,
		len(x.threads), x.quarantined, x.waited, &x.report)
}

// enough reports whether there was enough of everything, and more than half of
// the kills, also by the strict count of the journals, of workers with a claim.
func (x *chaosStorm) enough() bool {
	return x.kills >= x.quota.kills && 20*x.killsHeld >= 11*x.quota.kills && x.stops >= x.quota.stops && x.terms >= x.quota.terms
}

// storm makes faults until there were enough.
func (x *chaosStorm) storm() {
	x.thaws = make(chan *member, len(x.slots))
	for i := range x.slots {
		x.slots[i] = x.hire(crewOrder{Version: "chaos"})
	}
	end := time.Now().Add(time.Minute + 5*crewLease*time.Duration(x.quota.kills+x.quota.stops+x.quota.terms))
	for !x.enough() {
		if time.Now().After(end) {
			x.Fatal("the storm takes too long")
		}
		x.more()
		switch dice := x.rng.IntN(x.left()); {
		case dice < x.quota.stops-x.stops:
			x.stop()
		case dice < x.quota.stops-x.stops+x.quota.terms-x.terms:
			x.term()
		default:
			x.kill()
		}
		pause := time.After(crewLease/10 + time.Duration(x.rng.Int64N(int64(crewLease/3))))
		for waiting := true; waiting; {
			select {
			case m := <-x.thaws:
				x.thaw(m)
			case <-pause:
				waiting = false
			}
		}
		x.mu.Lock()
		failed := x.failed
		x.mu.Unlock()
		if failed != nil || x.Failed() {
			x.Fatal("the storm stops early: ", failed)
		}
	}
}

// left returns how many faults are still to be made, at least one.
func (x *chaosStorm) left() int {
	return max(0, x.quota.stops-x.stops) + max(0, x.quota.terms-x.terms) + max(1, x.quota.kills-x.kills)
}

// more starts threads, so that there are enough that have not ended.
func (x *chaosStorm) more() {
	x.mu.Lock()
	defer x.mu.Unlock()
	for x.open < x.quota.busy || x.kills == 0 && len(x.threads) < x.quota.threads/2 {
		n := len(x.threads)
		in := chaosInput{Name: fmt.Sprintf("errand-%d", n), N: n}
		x.threads = append(x.threads, in)
		x.open++
		go func() {
			err := x.attend(in)
			for errors.Is(err, store.ErrBusy) { // a frozen worker may keep a transaction open
				err = x.attend(in)
			}
			x.mu.Lock()
			defer x.mu.Unlock()
			x.open--
			if err != nil && x.failed == nil && x.Context().Err() == nil {
				x.failed = fmt.Errorf("thread %s: %w", in.Name, err)
			}
		}()
	}
}

// pick returns a slot whose process is up and not frozen, rather one that holds
// a claim, and -1 if there is none.
func (x *chaosStorm) pick() int {
	at, holds := -1, false
	for _, i := range x.rng.Perm(len(x.slots)) {
		up, stopped := x.slots[i].is()
		if !up || stopped {
			continue
		}
		if held := len(x.slots[i].holds()) > 0; at < 0 || held && !holds {
			at, holds = i, held
		}
		if holds || x.rng.IntN(8) == 0 {
			break
		}
	}
	return at
}

func (x *chaosStorm) kill() {
	i := x.pick()
	if i < 0 || x.rng.IntN(30) == 0 {
		i = x.rng.IntN(len(x.slots)) // also one that is not up yet, or is frozen
	}
	m := x.slots[i]
	if m.gone() {
		x.checkEnd(m, false)
		x.Fatal("a process ended by itself")
	}
	if _, stopped := m.is(); stopped {
		x.stopped--
	}
	at := time.Now()
	m.signal(syscall.SIGKILL)
	x.checkEnd(m, false)
	if up, _ := m.is(); up {
		x.kills++
		x.shots = append(x.shots, chaosShot{at, m})
		if len(m.holds()) > 0 {
			x.killsHeld++
		}
	} else {
		x.early++
	}
	x.slots[i] = x.hire(crewOrder{Version: "chaos"})
}

// stop freezes a process for longer than its lease.
func (x *chaosStorm) stop() {
	i := x.pick()
	if i < 0 || x.stopped >= 2 {
		return
	}
	m := x.slots[i]
	m.signal(syscall.SIGSTOP)
	x.stopped++
	x.stops++
	if len(m.holds()) > 0 {
		x.stopsHeld++
	}
	time.AfterFunc(crewLease*5/4+time.Duration(x.rng.Int64N(int64(2*crewLease))), func() { x.thaws <- m })
}

func (x *chaosStorm) thaw(m *member) {
	if !m.gone() {
		m.signal(syscall.SIGCONT)
		x.stopped--
	}
}

func (x *chaosStorm) term() {
	i := x.pick()
	if i < 0 {
		return
	}
	m := x.slots[i]
	m.signal(syscall.SIGTERM)
	x.terms++
	x.slots[i] = x.hire(crewOrder{Version: "chaos"})
	go x.checkEnd(m, true)
}

// attend starts a thread, answers its asks and sends its signal until it ends.
func (x *chaosStorm) attend(in chaosInput) error {
	ctx := x.Context()
	if _, err := x.rt.Start(ctx, perdure.StartRequest{Flow: "errand", Thread: in.Name, Key: "only", Input: in,
		User: fmt.Sprintf("user-%d", in.N%3), Budget: map[string]int64{"token": 1000}}); err != nil {
		return err
	}
	if in.N%2 == 0 { // before anybody waits for it
		if err := x.news(ctx, in); err != nil {
			return err
		}
	}
	for {
		run, err := x.rt.Wait(ctx, in.Name, "")
		if err != nil {
			return err
		}
		if run.Status.Final() {
			if run.Status != perdure.Succeeded {
				return fmt.Errorf("it %s: %s", run.Status, run.Error)
			}
			return nil
		}
		if err := x.help(ctx, in, run); err != nil {
			return err
		}
		<-time.After(20 * time.Millisecond)
	}
}

// help does what a run waits for.
func (x *chaosStorm) help(ctx context.Context, in chaosInput, run *perdure.Run) (err error) {
	if run.Status == perdure.Quarantined {
		err = x.retry(ctx, run)
	}
	for _, ask := range run.Asks {
		if ask.Kind == perdure.KindOutcome {
			err = errors.Join(err, x.decide(ctx, in, ask))
		} else {
			err = errors.Join(err, x.rt.Answer(ctx, perdure.AskAnswer{Ask: ask.ID, Answer: perdure.Answer{Value: 40 + in.N}}))
		}
	}
	for _, w := range run.Waits {
		switch w.Kind {
		case "signal":
			err = errors.Join(err, x.news(ctx, in))
		case "child":
			child, getErr := x.rt.GetRun(ctx, w.Child, "")
			if err = errors.Join(err, getErr); getErr == nil && child.Status == perdure.Quarantined {
				err = errors.Join(err, x.retry(ctx, child))
			}
		}
	}
	return err
}

func (x *chaosStorm) news(ctx context.Context, in chaosInput) error {
	return x.rt.Signal(ctx, in.Name, "news", "sunny", perdure.SignalOptions{Key: "news"})
}

func (x *chaosStorm) retry(ctx context.Context, run *perdure.Run) error {
	x.mu.Lock()
	x.quarantined++
	x.mu.Unlock()
	if m, err := x.rt.PostMortem(ctx, run.Thread, run.ID); err != nil || m.Status == perdure.Quarantined && (m.Deaths < 5 || m.Lost < 5) {
		return fmt.Errorf("run %s was quarantined with the post-mortem %+v, %w", run.ID, m, err)
	}
	return x.rt.Retry(ctx, run.Thread, run.ID, perdure.Note{By: "test"})
}

// decide answers an ask about what became of a step, once that is certain: the
// worker that was about to start it is gone, or knows that it lost its lease and
// has let all functions return.
func (x *chaosStorm) decide(ctx context.Context, in chaosInput, ask perdure.AskInfo) error {
	worker, err := x.starter(ctx, in.Name, ask.Path)
	if err != nil {
		return err
	}
	o, err := x.world.became(in.Name, ask.Path, ask.Guards, func(int) (bool, error) {
		m := x.of(worker)
		if m == nil {
			return false, nil // what it said is not yet read
		}
		m.mu.Lock()
		defer m.mu.Unlock()
		return m.gone() || slices.Index(m.workers, worker) < m.over, nil
	})
	a := perdure.Answer{Decision: perdure.DecisionNotDone}
	switch {
	case err != nil:
		return err
	case o == perdure.OutcomeUnknown:
		x.mu.Lock()
		x.waited++
		x.mu.Unlock()
		return nil
	case o == perdure.OutcomeDone:
		a = perdure.Answer{Decision: perdure.DecisionDone, Value: chaosValue(in.Name, ask.Path)}
	}
	return x.rt.Answer(ctx, perdure.AskAnswer{Ask: ask.ID, Answer: a})
}

// starter returns the id of the worker that was last about to start a step.
func (x *chaosStorm) starter(ctx context.Context, thread, path string) (starter string, err error) {
	worker := ""
	for e, err := range x.rt.Events(ctx, thread, perdure.EventOptions{Replay: true}) {
		switch {
		case err != nil:
			return "", err
		case e.Kind == string(journal.Claimed):
			worker = e.Worker
		case e.Kind == string(journal.Intent) && e.Path == path:
			starter = worker
		}
	}
	return starter, nil
}

// unfinished says what the threads are at that have not ended.
func (x *chaosStorm) unfinished() string {
	var b strings.Builder
	for _, in := range x.threads {
		run, err := x.rt.GetRun(x.Context(), in.Name, "")
		if err != nil {
			fmt.Fprintf(&b, "\n%s: %v", in.Name, err)
		} else if !run.Status.Final() {
			fmt.Fprintf(&b, "\n%s is %s after %s, %d resumes, waits %+v, asks %+v", in.Name, run.Status, run.Last, run.Resumes, run.Waits, run.Asks)
		}
	}
	return b.String()
}

// calm makes no more faults and lets all threads end.
func (x *chaosStorm) calm() {
	for x.stopped > 0 {
		x.thaw(<-x.thaws)
	}
	x.mu.Lock()
	for len(x.threads) < x.quota.threads {
		x.quota.busy = x.open + x.quota.threads - len(x.threads)
		x.mu.Unlock()
		x.more()
		x.mu.Lock()
	}
	x.mu.Unlock()
	x.await("all threads end", func() (bool, string) {
		x.mu.Lock()
		defer x.mu.Unlock()
		if x.failed != nil {
			x.Fatal(x.failed)
		}
		return x.open == 0, fmt.Sprintf("%d have not: %s", x.open, x.unfinished())
	})
	x.await("no hint is left", func() (bool, string) {
		left := x.cells("due/")
		return len(left) == 0, fmt.Sprintf("%d are, such as %.5q", len(left), left)
	})
	x.await("the dead are buried", func() (bool, string) {
		left := x.cells("worker/")
		return len(left) == len(x.slots), fmt.Sprintf("%d leases for %d workers", len(left), len(x.slots))
	})
	x.dismiss(x.slots[:])
}

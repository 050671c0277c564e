package proof_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/store"
)

// killWorld is the world outside of the store that the flow of TestKill acts
// on: a file to which each step adds a line when it starts and when it ends.
type killWorld struct {
	file *os.File
	life int
	told func() // is called after each line, if it is not nil
}

// What a line says that a step did.
const (
	killStart  = "start"
	killEffect = "effect" // what an at-most-once step does, between its start and end
	killEnd    = "end"
)

// killLine is a line of the world's file.
type killLine struct {
	what   string
	life   int
	thread int
	path   string
	key    string
}

// openKillWorld opens the file. A kill may have cut the last line in two, so
// each life begins a new one.
func openKillWorld(dir string, life int) (*killWorld, error) {
	f, err := os.OpenFile(filepath.Join(dir, "world"), os.O_CREATE|os.O_APPEND|os.O_RDWR, 0o666)
	if err == nil {
		_, err = f.WriteString("\n")
	}
	return &killWorld{file: f, life: life}, err
}

func (w *killWorld) tell(what string, thread int, path, key string) error {
	_, err := fmt.Fprintf(w.file, "%s %d %d %s %s .\n", what, w.life, thread, path, key)
	if w.told != nil {
		w.told()
	}
	return err
}

// readKillWorld returns the whole lines of the file behind an offset, of one
// key if that is not empty, and where the file ends.
func readKillWorld(dir string, offset int64, key string) (lines []killLine, end int64, err error) {
	f, err := os.Open(filepath.Join(dir, "world"))
	if err != nil {
		return nil, offset, err
	}
	defer f.Close()
	data, err := io.ReadAll(io.NewSectionReader(f, offset, 1<<30))
	for text := range bytes.Lines(data) {
		if key != "" && !bytes.Contains(text, []byte(key)) {
			continue
		}
		w := strings.Fields(string(text))
		if len(w) != 6 || w[5] != "." {
			continue
		}
		life, _ := strconv.Atoi(w[1])
		thread, _ := strconv.Atoi(w[2])
		lines = append(lines, killLine{w[0], life, thread, w[3], w[4]})
	}
	return lines, offset + int64(len(data)), err
}

// of returns the lines of a key.
func (w *killWorld) of(key string) ([]killLine, error) {
	lines, _, err := readKillWorld(filepath.Dir(w.file.Name()), 0, key)
	return lines, err
}

// happened reports whether the effect of an at-most-once step is in the world.
func (w *killWorld) happened(key string) (bool, error) {
	lines, err := w.of(key)
	return slices.ContainsFunc(lines, func(l killLine) bool { return l.what == killEffect }), err
}

// killTally is a dep that counts the steps that used it.
type killTally struct {
	mu sync.Mutex
	N  int
}

func (c *killTally) Dump(context.Context) (json.RawMessage, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return json.Marshal(map[string]int{"n": c.N})
}

func (c *killTally) Load(_ context.Context, state json.RawMessage) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return json.Unmarshal(state, c)
}

var (
	killCount = perdure.NewCounter("steps")
	killDep   = perdure.NewDep("tally", func(context.Context) (*killTally, error) { return new(killTally), nil })
)

// killOutput is what the flow returns: what it got from its steps and from the
// outside, and what state and dep held in the end.
type killOutput struct {
	Sum     int
	Counted int64
	Tally   int
	Answer  int
	News    string
}

// killValue is what the step at a path returns.
func killValue(thread int, path string) int {
	h := fnv.New32a()
	fmt.Fprintf(h, "%d %s", thread, path)
	return int(h.Sum32() % 1000)
}

// killFrame is a place in the flow: a context, and the path that it stands for.
type killFrame struct {
	*killWorld
	ctx    context.Context
	thread int
	path   string
}

func (f killFrame) below(ctx context.Context, name string) killFrame {
	f.ctx, f.path = ctx, f.path+"/"+name
	return f
}

// A killKind says what else a step does.
type killKind int

const (
	killPlain killKind = iota // it adds to the counter
	killTells                 // and to the dep
	killActs                  // it has an effect on the world, and changes nothing else
)

// leaf is the function of a step. It takes a moment, so that kills find it
// under way.
func (f killFrame) leaf(name string, kind killKind) func(context.Context) (int, error) {
	return func(ctx context.Context) (int, error) {
		path, key := f.path+"/"+name, perdure.Key(ctx)
		if err := f.tell(killStart, f.thread, path, key); err != nil {
			return 0, err
		}
		<-time.After(rand.N(3 * time.Millisecond))
		var err error
		switch kind {
		case killActs:
			err = f.tell(killEffect, f.thread, path, key)
			<-time.After(rand.N(3 * time.Millisecond))
		case killTells:
			var dep *killTally
			if dep, err = killDep.Get(ctx); err == nil {
				dep.mu.Lock()
				dep.N++
				dep.mu.Unlock()
			}
			fallthrough
		default:
			err = errors.Join(err, killCount.Add(ctx, 1))
		}
		return killValue(f.thread, path), errors.Join(err, f.tell(killEnd, f.thread, path, key))
	}
}

// steps runs n steps one after the other and returns the sum of their results.
func (f killFrame) steps(prefix string, n int, kind killKind) (int, error) {
	sum := 0
	for i := range n {
		name := fmt.Sprintf("%s-%02d", prefix, i)
		v, err := perdure.Step(f.ctx, name, f.leaf(name, kind))
		if err != nil {
			return 0, err
		}
		sum += v
	}
	return sum, nil
}

// flaky is a step that fails when it is started for the first time.
func (f killFrame) flaky(name string) (int, error) {
	leaf := f.leaf(name, killPlain)
	return perdure.Step(f.ctx, name, func(ctx context.Context) (int, error) {
		before, err := f.of(perdure.Key(ctx))
		if err != nil {
			return 0, err
		}
		v, err := leaf(ctx)
		if err == nil && len(before) == 0 {
			err = errors.New("not yet")
		}
		return v, err
	}, perdure.Retry(perdure.RetryPolicy{Attempts: 2, Wait: time.Millisecond}))
}

// once is an at-most-once step.
func (f killFrame) once(name string, opts ...perdure.StepOption) (int, error) {
	return perdure.Step(f.ctx, name, f.leaf(name, killActs), append(opts, perdure.AtMostOnce(), perdure.Timeout(killOnceTimeout))...)
}

// killOnceTimeout is longer than the steps take, and short because whoever
// takes an at-most-once step over sits it out.
const killOnceTimeout = 30 * time.Millisecond

// group runs three branches, of which one asks and one sleeps.
func (f killFrame) group() (sum, answer int, err error) {
	var sums [3]int
	g := perdure.NewGroup(f.ctx)
	g.Go("branch-a", func(ctx context.Context) (err error) {
		sums[0], err = f.below(ctx, "branch-a").steps("a", 8, killPlain)
		return err
	})
	g.Go("branch-b", func(ctx context.Context) (err error) {
		b := f.below(ctx, "branch-b")
		if sums[1], err = b.steps("b", 4, killPlain); err != nil {
			return err
		}
		if answer, err = perdure.Ask[int](ctx, "number", perdure.Question{Prompt: "Which number?"}); err != nil {
			return err
		}
		more, err := b.steps("after", 3, killPlain)
		sums[1] += more
		return err
	})
	g.Go("branch-c", func(ctx context.Context) (err error) {
		if err := perdure.Sleep(ctx, "nap", 20*time.Millisecond); err != nil {
			return err
		}
		sums[2], err = f.below(ctx, "branch-c").steps("c", 4, killPlain)
		return err
	})
	err = g.Wait()
	return sums[0] + sums[1] + sums[2], answer, err
}

// flow returns the flow, whose input is the number of its thread.
func (w *killWorld) flow() perdure.Flow {
	return perdure.NewFlow("errands", func(ctx context.Context, thread int) (out killOutput, err error) {
		f := killFrame{killWorld: w, ctx: ctx, thread: thread}
		add := func(v int, stepErr error) bool {
			out.Sum += v
			err = stepErr
			return err == nil
		}
		reconcile := perdure.Reconcile(func(ctx context.Context) (int, perdure.Outcome, error) {
			done, err := w.happened(perdure.Key(ctx))
			if done {
				return killValue(thread, "/charge"), perdure.OutcomeDone, err
			}
			return 0, perdure.OutcomeNotDone, err
		})
		nested := func(name string, n int) func(context.Context) (int, error) {
			return func(ctx context.Context) (int, error) { return f.below(ctx, name).steps(name, n, killPlain) }
		}
		group := func() (sum int, err error) {
			sum, out.Answer, err = f.group()
			return sum, err
		}
		ok := add(f.steps("first", 16, killTells)) &&
			add(perdure.Step(ctx, "parcel", nested("parcel", 6))) &&
			add(perdure.Scope(ctx, "hall", nested("hall", 4))) &&
			add(group()) &&
			add(f.flaky("flaky")) &&
			add(f.once("charge", reconcile)) &&
			add(f.once("wire"))
		if !ok {
			return out, err
		}
		if out.News, err = perdure.Receive[string](ctx, "news", "news", 0); err != nil {
			return out, err
		}
		if err := perdure.Sleep(ctx, "rest", 20*time.Millisecond); err != nil {
			return out, err
		}
		if err := perdure.Emit(ctx, "nearly", out.Sum); err != nil {
			return out, err
		}
		if !add(f.steps("last", 10, killTells)) {
			return out, err
		}
		if out.Counted, err = killCount.Get(ctx); err != nil {
			return out, err
		}
		dep, err := killDep.Get(ctx)
		if err != nil {
			return out, err
		}
		out.Tally = dep.N
		return out, nil
	})
}

// killOutside is the flow's other side: it starts the threads, answers their
// asks and sends their signals until they end. All of it can be repeated.
type killOutside struct {
	*perdure.Runtime
	world *killWorld
	say   func(format string, args ...any)
}

// attendAll runs a worker until the threads have ended.
func (o *killOutside) attendAll(s store.Store, lease time.Duration, threads ...int) (err error) {
	ctx, cancel := context.WithCancelCause(context.Background())
	defer cancel(nil)
	if o.Runtime, err = perdure.New(ctx, s, perdure.Options{Version: "kill", Lease: lease}, o.world.flow()); err != nil {
		return err
	}
	worked := make(chan error, 1)
	go func() {
		err := o.Work(ctx)
		cancel(fmt.Errorf("the worker has ended: %w", err))
		worked <- err
	}()
	o.say("up")
	errs := make([]error, len(threads))
	var wg sync.WaitGroup
	for i, n := range threads {
		wg.Go(func() { errs[i] = o.attend(ctx, n) })
	}
	wg.Wait()
	cancel(nil)
	return errors.Join(append(errs, <-worked)...)
}

func killThread(n int) string { return fmt.Sprintf("errands-%d", n) }

func (o *killOutside) attend(ctx context.Context, n int) error {
	thread := killThread(n)
	if _, err := o.Start(ctx, perdure.StartRequest{Flow: "errands", Thread: thread, Key: "only", Input: n}); err != nil {
		return err
	}
	// One half of the signals come before anybody waits for them.
	early := n%2 == 0
	if early {
		if err := o.news(ctx, thread); err != nil {
			return err
		}
	}
	for {
		run, err := o.Wait(ctx, thread, "")
		switch {
		case err != nil:
			return err
		case run.Status == perdure.Succeeded:
			return nil
		case run.Status == perdure.Quarantined:
			o.say("quarantined")
			err = o.Retry(ctx, thread, run.ID, perdure.Note{By: "test"})
		case run.Status != perdure.Suspended:
			return fmt.Errorf("thread %s is %s: %s%s", thread, run.Status, run.Error, run.Diff)
		}
		for _, ask := range run.Asks {
			err = errors.Join(err, o.answer(ctx, n, ask))
		}
		for _, wait := range run.Waits {
			if wait.Kind == "signal" {
				err = errors.Join(err, o.news(ctx, thread))
			}
		}
		if err != nil {
			return err
		}
	}
}

func (o *killOutside) news(ctx context.Context, thread string) error {
	return o.Signal(ctx, thread, "news", "sunny", perdure.SignalOptions{Key: "news"})
}

// answer answers an ask, after a look into the world if it is about what
// became of a step.
func (o *killOutside) answer(ctx context.Context, n int, ask perdure.AskInfo) error {
	a := perdure.Answer{Value: 40 + n}
	if ask.Kind == perdure.KindOutcome {
		done, err := o.world.happened(ask.Guards)
		if err != nil {
			return err
		}
		a = perdure.Answer{Decision: perdure.DecisionNotDone}
		if done {
			a = perdure.Answer{Decision: perdure.DecisionDone, Value: killValue(n, ask.Path)}
		}
	}
	return o.Answer(ctx, perdure.AskAnswer{Ask: ask.ID, Answer: a})
}

// killLease is short because each child waits for that of its predecessor.
const killLease = 25 * time.Millisecond

// killOrder tells a child what to do.
type killOrder struct {
	Test, URL, Dir string
	Life           int
	Threads        []int
}

const (
	killEnv  = "PERDURE_KILL_CHILD"
	killMark = "~kill "
)

// killSay tells the parent something with one write.
func killSay(format string, args ...any) {
	fmt.Printf(killMark+"%s\n", strings.ReplaceAll(fmt.Sprintf(format, args...), "\n", " "))
}

// killChild executes threads until they end or the parent kills it.
func killChild(order killOrder) {
	go func() {
		io.Copy(io.Discard, os.Stdin)
		os.Exit(3) // the parent is gone
	}()
	killSay("opening")
	if err := killLive(order); err != nil {
		killSay("fail %v", err)
		os.Exit(4)
	}
	killSay("ended")
	os.Exit(0)
}

func killLive(order killOrder) error {
	world, err := openKillWorld(order.Dir, order.Life)
	if err != nil {
		return err
	}
	world.told = func() { killSay("line") }
	s, err := store.Open(context.Background(), order.URL)
	if err != nil {
		return err
	}
	out := &killOutside{world: world, say: killSay}
	return errors.Join(out.attendAll(s, killLease, order.Threads...), s.Close())
}

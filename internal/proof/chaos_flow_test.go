//go:build darwin || freebsd || linux || netbsd || openbsd

package proof_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/perdure/perdure"
)

// chaosWorld is the world that the flows of TestChaos act on: a file for each
// thread, to which all processes append.
type chaosWorld struct {
	dir  string
	life int
}

// What a line of the world says about a step.
const (
	chaosDid    = "did"    // of a step that may be done again
	chaosStart  = "start"  // of an at-most-once step,
	chaosEffect = "effect" // which did it,
	chaosLeft   = "left"   // and is over, whether it did or not
	chaosVoid   = "void"   // whoever started it before did nothing, and never will
)

type chaosLine struct {
	what string
	life int
	path string
	key  string
}

func (w chaosWorld) file(name string) string { return filepath.Join(w.dir, "world-"+name) }

// tell appends a line with one write.
func (w chaosWorld) tell(name, what, path, key string) error {
	f, err := os.OpenFile(w.file(name), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o666)
	if err != nil {
		return err
	}
	defer f.Close()
	_, err = fmt.Fprintf(f, "%s %d %s %s .\n", what, w.life, path, key)
	return err
}

// lines returns what happened at a path, all paths for "".
func (w chaosWorld) lines(name, path string) (lines []chaosLine, err error) {
	data, err := os.ReadFile(w.file(name))
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	for text := range bytes.Lines(data) {
		f := strings.Fields(string(text))
		if len(f) != 5 || f[4] != "." {
			return nil, fmt.Errorf("the world of %s has the line %q", name, text)
		}
		life, err := strconv.Atoi(f[1])
		if err != nil {
			return nil, err
		}
		if path == "" || path == f[2] {
			lines = append(lines, chaosLine{f[0], life, f[2], f[3]})
		}
	}
	return lines, err
}

// became finds out what became of the last start of an at-most-once step. It is
// sure that it did nothing if whoever started it is over.
func (w chaosWorld) became(name, path, key string, over func(life int) (bool, error)) (perdure.Outcome, error) {
	for range 2 {
		lines, err := w.lines(name, path)
		if err != nil {
			return perdure.OutcomeUnknown, err
		}
		life, left := 0, false
		for _, l := range lines {
			switch l.what {
			case chaosEffect:
				return perdure.OutcomeDone, nil
			case chaosStart:
				life, left = l.life, false
			case chaosLeft:
				left = left || l.life == life
			case chaosVoid:
				life, left = 0, false
			}
		}
		// A second look, since it may have happened before it was over.
		if sure, err := over(life); err != nil || !sure && !left {
			return perdure.OutcomeUnknown, err
		}
	}
	return perdure.OutcomeNotDone, w.tell(name, chaosVoid, path, key)
}

// chaosInput is what the flows take.
type chaosInput struct {
	Name string // of the world's file
	N    int
}

// chaosOutput is what the flow returns.
type chaosOutput struct {
	Sum     int
	Counted int64
	Tally   int
	Answer  int
	News    string
	Legs    int
}

var (
	chaosCount = perdure.NewCounter("steps")
	chaosLast  = perdure.NewState[string]("last")
	chaosDep   = perdure.NewDep("tally", func(context.Context) (*killTally, error) { return new(killTally), nil })
)

func chaosValue(name, path string) int {
	h := fnv.New32a()
	fmt.Fprintf(h, "%s %s", name, path)
	return int(h.Sum32() % 1000)
}

// chaosFrame is a place in a flow.
type chaosFrame struct {
	chaosWorld
	ctx    context.Context
	in     chaosInput
	path   string
	beside bool // a branch: its steps leave the dep alone, which is exact for one at a time
}

func (f chaosFrame) below(ctx context.Context, name string) chaosFrame {
	f.ctx, f.path = ctx, f.path+"/"+name
	return f
}

// branch is below, for a branch of a group.
func (f chaosFrame) branch(ctx context.Context, name string) chaosFrame {
	f = f.below(ctx, name)
	f.beside = true
	return f
}

// steps runs steps one after the other. Each changes state and dep, and spends.
func (f chaosFrame) steps(prefix string, n int) (sum int, err error) {
	for i := range n {
		name := fmt.Sprintf("%s-%d", prefix, i)
		path := f.path + "/" + name
		v, err := perdure.Step(f.ctx, name, func(ctx context.Context) (int, error) {
			<-time.After(rand.N(15 * time.Millisecond))
			if !f.beside {
				dep, err := chaosDep.Get(ctx)
				if err != nil {
					return 0, err
				}
				dep.mu.Lock()
				dep.N++
				dep.mu.Unlock()
			}
			return chaosValue(f.in.Name, path), errors.Join(
				f.tell(f.in.Name, chaosDid, path, perdure.Key(ctx)),
				perdure.Spend(ctx, "token", 10),
				chaosLast.Set(ctx, path),
				chaosCount.Add(ctx, 1))
		})
		if err != nil {
			return 0, err
		}
		sum += v
	}
	return sum, nil
}

// chaosTimeout is how long an at-most-once step may take.
const chaosTimeout = 150 * time.Millisecond

// once is an at-most-once step that heeds its time.
func (f chaosFrame) once(name string, opts ...perdure.StepOption) (int, error) {
	path := f.path + "/" + name
	opts = append(opts, perdure.AtMostOnce(), perdure.Timeout(chaosTimeout),
		perdure.Retry(perdure.RetryPolicy{Attempts: 50, Wait: time.Millisecond, MaxWait: 50 * time.Millisecond}))
	return perdure.Step(f.ctx, name, func(ctx context.Context) (int, error) {
		key, began := perdure.Key(ctx), time.Now()
		if err := f.tell(f.in.Name, chaosStart, path, key); err != nil {
			return 0, err
		}
		<-time.After(rand.N(8 * time.Millisecond))
		var err error
		if ctx.Err() != nil || time.Since(began) > chaosTimeout { // it was frozen
			err = perdure.NotDone(errors.New("it is too late"))
		} else {
			err = f.tell(f.in.Name, chaosEffect, path, key)
		}
		<-time.After(rand.N(8 * time.Millisecond))
		if leftErr := f.tell(f.in.Name, chaosLeft, path, key); leftErr != nil {
			return 0, leftErr
		}
		return chaosValue(f.in.Name, path), err
	}, opts...)
}

// reconcile looks into the world. If the process that started the step may still
// go on, it cannot tell.
func (f chaosFrame) reconcile(name string) perdure.StepOption {
	path := f.path + "/" + name
	return perdure.Reconcile(func(ctx context.Context) (int, perdure.Outcome, error) {
		o, err := f.became(f.in.Name, path, perdure.Key(ctx), func(life int) (bool, error) {
			if life == 0 {
				return false, nil // somebody may be about to start it
			}
			return lifeOver(f.dir, life)
		})
		return chaosValue(f.in.Name, path), o, err
	})
}

// group runs three branches, of which one asks and one sleeps.
func (f chaosFrame) group() (sum, answer int, err error) {
	var sums [3]int
	g := perdure.NewGroup(f.ctx)
	g.Go("left", func(ctx context.Context) (err error) {
		sums[0], err = f.branch(ctx, "left").steps("left", 3)
		return err
	})
	g.Go("right", func(ctx context.Context) (err error) {
		if answer, err = perdure.Ask[int](ctx, "number", perdure.Question{Prompt: "Which number?"}); err != nil {
			return err
		}
		sums[1], err = f.branch(ctx, "right").steps("right", 2)
		return err
	})
	g.Go("nap", func(ctx context.Context) (err error) {
		if err := perdure.Sleep(ctx, "nap", 30*time.Millisecond); err != nil {
			return err
		}
		sums[2], err = f.branch(ctx, "nap").steps("nap", 2)
		return err
	})
	err = g.Wait()
	return sums[0] + sums[1] + sums[2], answer, err
}

// chaosFlows are the flow of the threads that the test starts, and those of
// their children.
func chaosFlows(order crewOrder) []perdure.Flow {
	w := chaosWorld{dir: order.Dir, life: order.Life}
	return []perdure.Flow{
		perdure.NewFlow("errand", w.errand),
		perdure.NewFlow("leg", func(ctx context.Context, in chaosInput) (int, error) {
			f := chaosFrame{chaosWorld: w, ctx: ctx, in: in}
			first, err := f.steps("walk", 2)
			if err != nil {
				return 0, err
			}
			if err := perdure.Sleep(ctx, "rest", 40*time.Millisecond); err != nil {
				return 0, err
			}
			second, err := f.steps("back", 1)
			return first + second, err
		}),
		perdure.NewFlow("idler", func(ctx context.Context, in chaosInput) (_ int, err error) {
			f := chaosFrame{chaosWorld: w, ctx: ctx, in: in}
			defer func() {
				if err != nil {
					err = errors.Join(err, perdure.Cleanup(ctx, "tidy", func(ctx context.Context) error {
						return f.tell(in.Name, chaosDid, "/tidy", "-")
					}))
				}
			}()
			return perdure.Receive[int](ctx, "never", "never", 0)
		}),
	}
}

func (w chaosWorld) errand(ctx context.Context, in chaosInput) (out chaosOutput, err error) {
	f := chaosFrame{chaosWorld: w, ctx: ctx, in: in}
	add := func(v int, stepErr error) bool {
		out.Sum += v
		err = stepErr
		return err == nil
	}
	if !add(f.steps("first", 4)) {
		return out, err
	}
	var legs []*perdure.Child
	for _, name := range []string{"leg-0", "leg-1", "idler-0"} {
		flow, _, _ := strings.Cut(name, "-")
		c, err := perdure.Spawn(ctx, name, flow, chaosInput{Name: in.Name + "-" + name, N: in.N})
		if err != nil {
			return out, err
		}
		legs = append(legs, c)
	}
	group := func() (sum int, err error) {
		sum, out.Answer, err = f.group()
		return sum, err
	}
	ok := add(group()) &&
		add(perdure.Step(ctx, "parcel", func(ctx context.Context) (int, error) { return f.below(ctx, "parcel").steps("parcel", 2) })) &&
		add(f.once("charge", f.reconcile("charge"))) &&
		add(f.once("wire"))
	if !ok {
		return out, err
	}
	if out.News, err = perdure.Receive[string](ctx, "news", "news", 0); err != nil {
		return out, err
	}
	for i, c := range legs[:2] {
		v, err := perdure.Join[int](ctx, fmt.Sprintf("join-%d", i), c)
		if err != nil {
			return out, err
		}
		out.Legs += v
	}
	if err := perdure.Sleep(ctx, "rest", time.Duration(20+in.N%7*30)*time.Millisecond); err != nil {
		return out, err
	}
	if !add(f.steps("last", 3)) {
		return out, err
	}
	if out.Counted, err = chaosCount.Get(ctx); err != nil {
		return out, err
	}
	dep, err := chaosDep.Get(ctx)
	if err != nil {
		return out, err
	}
	out.Tally = dep.N
	return out, nil
}

// chaosPlain, chaosOnce and chaosLegs are the paths of the leaves of a thread
// and of its legs.
var (
	chaosPlain = []string{"/first-0", "/first-1", "/first-2", "/first-3", "/left/left-0", "/left/left-1", "/left/left-2",
		"/right/right-0", "/right/right-1", "/nap/nap-0", "/nap/nap-1", "/parcel/parcel-0", "/parcel/parcel-1", "/last-0", "/last-1", "/last-2"}
	chaosOnce = []string{"/charge", "/wire"}
	chaosLegs = []string{"/walk-0", "/walk-1", "/back-0"}
)

// chaosWant is what a thread returns, whatever happens to its workers.
func chaosWant(in chaosInput) chaosOutput {
	want := chaosOutput{Counted: int64(len(chaosPlain)), Tally: 9, Answer: 40 + in.N, News: "sunny"}
	for _, path := range slices.Concat(chaosPlain, chaosOnce) {
		want.Sum += chaosValue(in.Name, path)
	}
	for _, leg := range []string{"-leg-0", "-leg-1"} {
		for _, path := range chaosLegs {
			want.Legs += chaosValue(in.Name+leg, path)
		}
	}
	return want
}

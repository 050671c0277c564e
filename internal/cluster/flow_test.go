//go:build unix

package cluster_test

import (
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

// world is what steps act on: a file for each thread, to which all processes append
// lines "WHAT LIFE PATH KEY ."
type world struct {
	dir  string
	life int
}

// What a line says about a step.
const (
	did    = "did"    // of a step that may be done again
	begun  = "begun"  // of an at-most-once step,
	effect = "effect" // which did it,
	left   = "left"   // and is over, whether it did or not
)

type line struct {
	what string
	life int
	path string
	key  string
}

func (w world) file(name string) string { return filepath.Join(w.dir, "world-"+name) }

// tell appends a line with one write.
func (w world) tell(name, what, path, key string) error {
	f, err := os.OpenFile(w.file(name), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o666)
	if err != nil {
		return err
	}
	defer f.Close()
	_, err = fmt.Fprintf(f, "%s %d %s %s .\n", what, w.life, path, key)
	return err
}

// lines returns what happened on a thread.
func (w world) lines(name string) (lines []line, err error) {
	data, err := os.ReadFile(w.file(name))
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, err
	}
	for text := range strings.Lines(string(data)) {
		f := strings.Fields(text)
		if len(f) != 5 || f[4] != "." {
			return nil, fmt.Errorf("the world of %s has the line %q", name, text)
		}
		life, err := strconv.Atoi(f[1])
		if err != nil {
			return nil, err
		}
		lines = append(lines, line{f[0], life, f[2], f[3]})
	}
	return lines, nil
}

// value is what a step returns, whoever executes it.
func value(name, path string) int {
	h := fnv.New32a()
	fmt.Fprintf(h, "%s %s", name, path)
	return int(h.Sum32() % 1000)
}

// input is what the flows take.
type input struct {
	Name string // of the world's file
	N    int
}

// output is what an order returns.
type output struct{ Sum, Answer, Leg int }

// frame is a place in a flow.
type frame struct {
	world
	name string
	path string
}

// step is a plain step.
func (f frame) step(ctx context.Context, name string) (int, error) {
	path := f.path + "/" + name
	return perdure.Step(ctx, name, func(ctx context.Context) (int, error) {
		<-time.After(rand.N(10 * time.Millisecond))
		return value(f.name, path), f.tell(f.name, did, path, perdure.Key(ctx))
	})
}

// onceTimeout is how long the at-most-once step may take.
const onceTimeout = 300 * time.Millisecond

// once is an at-most-once step that heeds its time.
func (f frame) once(ctx context.Context, name string) (int, error) {
	path := f.path + "/" + name
	return perdure.Step(ctx, name, func(ctx context.Context) (_ int, err error) {
		key := perdure.Key(ctx)
		if err := f.tell(f.name, begun, path, key); err != nil {
			return 0, err
		}
		<-time.After(rand.N(8 * time.Millisecond))
		if ctx.Err() != nil { // it was frozen
			err = perdure.NotDone(errors.New("it is too late"))
		} else {
			err = f.tell(f.name, effect, path, key)
		}
		<-time.After(rand.N(8 * time.Millisecond))
		return value(f.name, path), errors.Join(err, f.tell(f.name, left, path, key))
	}, perdure.AtMostOnce(), perdure.Timeout(onceTimeout),
		perdure.Retry(perdure.RetryPolicy{Attempts: 50, Wait: time.Millisecond, MaxWait: 50 * time.Millisecond}))
}

// flows are those of a node: an order, and its child.
func flows(o order) []perdure.Flow {
	w := world{dir: o.Dir, life: o.Life}
	return []perdure.Flow{
		perdure.NewFlow("order", func(ctx context.Context, in input) (output, error) {
			return frame{world: w, name: in.Name}.order(ctx, in)
		}),
		perdure.NewFlow("leg", func(ctx context.Context, in input) (int, error) {
			f := frame{world: w, name: in.Name}
			first, err := f.step(ctx, "walk")
			if err != nil {
				return 0, err
			}
			if err := perdure.Sleep(ctx, "rest", 40*time.Millisecond); err != nil {
				return 0, err
			}
			second, err := f.step(ctx, "back")
			return first + second, err
		}),
	}
}

func (f frame) order(ctx context.Context, in input) (out output, err error) {
	if out.Sum, err = f.step(ctx, "first"); err != nil {
		return out, err
	}
	leg, err := perdure.Spawn(ctx, "leg", "leg", input{Name: in.Name + "-leg", N: in.N})
	if err != nil {
		return out, err
	}
	var sums [3]int
	g := perdure.NewGroup(ctx)
	below := func(branch string) frame {
		f := f
		f.path += "/" + branch
		return f
	}
	g.Go("left", func(ctx context.Context) (err error) {
		sums[0], err = below("left").step(ctx, "pack")
		return err
	})
	g.Go("right", func(ctx context.Context) (err error) {
		if out.Answer, err = perdure.Ask[int](ctx, "number", perdure.Question{Kind: "approval", Prompt: "Which number?"}); err != nil {
			return err
		}
		sums[1], err = below("right").step(ctx, "label")
		return err
	})
	g.Go("nap", func(ctx context.Context) (err error) {
		if err := perdure.Sleep(ctx, "nap", 30*time.Millisecond); err != nil {
			return err
		}
		sums[2], err = below("nap").step(ctx, "wrap")
		return err
	})
	if err := g.Wait(); err != nil {
		return out, err
	}
	wired, err := f.once(ctx, "wire")
	if err != nil {
		return out, err
	}
	if out.Leg, err = perdure.Join[int](ctx, "join", leg); err != nil {
		return out, err
	}
	if err := perdure.Sleep(ctx, "wait", time.Duration(10+in.N%7*30)*time.Millisecond); err != nil {
		return out, err
	}
	last, err := f.step(ctx, "last")
	out.Sum += sums[0] + sums[1] + sums[2] + wired + last
	return out, err
}

// The paths of the steps of an order and of its child.
var (
	plainSteps = []string{"/first", "/left/pack", "/right/label", "/nap/wrap", "/last"}
	legSteps   = []string{"/walk", "/back"}
)

const onceStep = "/wire"

// want is what an order returns, whatever happens to its workers.
func want(in input) output {
	w := output{Answer: answerOf(in.N)}
	for _, path := range append(slices.Clone(plainSteps), onceStep) {
		w.Sum += value(in.Name, path)
	}
	for _, path := range legSteps {
		w.Leg += value(in.Name+"-leg", path)
	}
	return w
}

// answerOf is the answer to the question of an order.
func answerOf(n int) int { return 40 + n }

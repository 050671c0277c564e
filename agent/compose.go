package agent

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/llm"
)

// group is an agent that is made of others.
type group struct {
	name     string
	about    string
	children []Agent
	err      error
	fast     bool // a parallel one fails fast
	parallel bool
	body     func(ctx context.Context, g *group, v visit) (*Result, error)
}

func newGroup(name, about string, children []Agent, body func(context.Context, *group, visit) (*Result, error)) *group {
	g := &group{name: name, about: about, children: children, body: body}
	var errs []error
	if !toolName.MatchString(name) {
		errs = append(errs, fmt.Errorf("%w: agent %q: its name is not 1 to 64 letters, digits, - and _", ErrOption, name))
	}
	seen := map[string]bool{}
	for _, c := range children {
		switch {
		case c == nil:
			errs = append(errs, fmt.Errorf("%w: agent %q has a child that is nil", ErrOption, name))
		case seen[c.Name()]:
			errs = append(errs, fmt.Errorf("%w: agent %q has the child %q twice", ErrOption, name, c.Name()))
		default:
			seen[c.Name()] = true
		}
	}
	if len(children) == 0 {
		errs = append(errs, fmt.Errorf("%w: agent %q has no children", ErrOption, name))
	}
	g.err = errors.Join(errs...)
	return g
}

func (g *group) Name() string        { return g.name }
func (g *group) description() string { return g.about }

func (g *group) check(n *names) error {
	if fresh, err := n.see(g); err != nil || !fresh {
		return err
	}
	errs := []error{g.err}
	for _, c := range g.children {
		if c != nil {
			errs = append(errs, c.check(n))
		}
	}
	return errors.Join(errs...)
}

func (g *group) run(ctx context.Context, step string, v visit) (*Result, error) {
	return composite(ctx, step, g.name, v.in, func(ctx context.Context) (*Result, error) {
		if err := v.takeOver(ctx); err != nil {
			return nil, err
		}
		r, err := g.body(context.WithValue(ctx, belowKey{}, true), g, v)
		if err == nil {
			r.Agent = g.name
		}
		return r, err
	})
}

// inTurn runs the children one after the other: the first is given the input,
// each next one what the one before it said. It stops behind one that
// escalates, if it is to.
func (g *group) inTurn(ctx context.Context, v visit, total *Result, stop bool) error {
	for _, c := range g.children {
		r, err := c.run(ctx, c.Name(), visit{in: v.in, from: v.from, alone: v.alone, within: v.within})
		if err != nil {
			return err
		}
		total.Text, total.Value, total.Stop = r.Text, r.Value, r.Stop
		total.Usage, total.Turns = total.Usage.Add(r.Usage), total.Turns+r.Turns
		total.Escalate = total.Escalate || r.Escalate
		if r.Text != "" {
			v.in, v.from = Content{llm.User(r.Text)}, r.Agent
		}
		if stop && r.Escalate {
			return nil
		}
	}
	return nil
}

// Sequential runs agents one after the other. The first gets the input, and each
// other one the output of its predecessor; the output of the last one is the result.
func Sequential(name string, children ...Agent) Agent {
	return newGroup(name, "Runs agents one after the other.", children, func(ctx context.Context, g *group, v visit) (*Result, error) {
		total := new(Result)
		return total, g.inTurn(ctx, v, total, false)
	})
}

// Loop runs agents one after the other and then starts over, at most max times in
// all. A child that escalates, by [Escalate] or the tool [ExitLoop], ends the loop: no
// further child runs.
func Loop(name string, max int, children ...Agent) Agent {
	g := newGroup(name, "Runs agents again and again.", children, func(ctx context.Context, g *group, v visit) (*Result, error) {
		total := new(Result)
		for i := range max {
			_, err := perdure.Scope(ctx, fmt.Sprintf("round-%d", i+1), func(ctx context.Context) (bool, error) {
				return true, g.inTurn(ctx, v, total, true)
			})
			if err != nil {
				return nil, err
			}
			if total.Escalate {
				total.Escalate = false // it is for this loop
				break
			}
			if total.Text != "" {
				v.in = Content{llm.User(total.Text)}
			}
		}
		return total, nil
	})
	if max <= 0 {
		g.err = errors.Join(g.err, fmt.Errorf("%w: agent %q: a loop runs at least once, not %d times", ErrOption, name, max))
	}
	return g
}

// Parallel runs agents at the same time, each with the same input. Its value has
// the output of each, by name. An agent that waits does not hold up the others. If one
// fails, the others still finish; Parallel then returns its error, and a retry runs
// only what failed. See [FailFast].
func Parallel(name string, children ...Agent) Agent {
	g := newGroup(name, "Runs agents at the same time.", children, func(ctx context.Context, g *group, v visit) (*Result, error) {
		results := make([]*Result, len(g.children))
		var opts []perdure.GroupOption
		if g.fast {
			opts = append(opts, perdure.FailFast())
		}
		branches := perdure.NewGroup(ctx, opts...)
		for i, c := range g.children {
			branches.Go("branch-"+c.Name(), func(ctx context.Context) (err error) {
				results[i], err = c.run(ctx, c.Name(), visit{in: v.in, from: v.from, alone: v.alone, within: v.within})
				return err
			})
		}
		if err := branches.Wait(); err != nil {
			return nil, err
		}
		total := new(Result)
		said := map[string]any{}
		var b strings.Builder
		for i, r := range results {
			total.Usage, total.Turns, total.Escalate = total.Usage.Add(r.Usage), total.Turns+r.Turns, total.Escalate || r.Escalate
			fmt.Fprintf(&b, "[%s] %s\n", g.children[i].Name(), r.Text)
			said[g.children[i].Name()] = r.Text
			if r.Value != nil {
				said[g.children[i].Name()] = r.Value
			}
		}
		var err error
		total.Text = strings.TrimSuffix(b.String(), "\n")
		total.Value, err = json.Marshal(said)
		return total, err
	})
	g.parallel = true
	return g
}

// FailFast returns a [Parallel] agent that, when one of its children fails, does not
// wait for the others: it closes them, with their asks, as [perdure.FailFast] does.
func FailFast(parallel Agent) Agent {
	g, ok := parallel.(*group)
	if !ok || !g.parallel {
		name := "fail-fast"
		if parallel != nil {
			name = parallel.Name()
		}
		bad := newGroup(name, "", nil, nil)
		bad.err = fmt.Errorf("%w: agent %q is to fail fast, and is not made by Parallel", ErrOption, name)
		return bad
	}
	fast := *g
	fast.fast = true
	return &fast
}

// Func makes an agent from a function. The function is flow code: it may call verbs,
// run other agents and [Escalate], and does everything else in steps.
func Func(name string, fn func(ctx context.Context, in Content) (string, error)) Agent {
	return &function{name: name, fn: fn}
}

type function struct {
	name string
	fn   func(ctx context.Context, in Content) (string, error)
}

func (f *function) Name() string        { return f.name }
func (f *function) description() string { return "" }

func (f *function) check(n *names) error {
	if _, err := n.see(f); err != nil {
		return err
	}
	if !toolName.MatchString(f.name) || f.fn == nil {
		return fmt.Errorf("%w: agent %q: it needs a function, and a name of 1 to 64 letters, digits, - and _", ErrOption, f.name)
	}
	return nil
}

func (f *function) run(ctx context.Context, step string, v visit) (*Result, error) {
	return composite(ctx, step, f.name, v.in, func(ctx context.Context) (*Result, error) {
		if err := v.takeOver(ctx); err != nil {
			return nil, err
		}
		news := new(callNews)
		text, err := f.fn(context.WithValue(ctx, newsKey{}, news), v.in)
		escalate, _ := news.told()
		return &Result{Agent: f.name, Text: text, Escalate: escalate}, err
	})
}

//go:build darwin || freebsd || linux || netbsd || openbsd

package proof_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/kit"
)

// TestPoison has real processes execute runs that kill them, beside others, and
// starts each process again as a supervisor does. The killers end up quarantined
// and all others end; with mended code a retry goes on where they were.
func TestPoison(t *testing.T) {
	for _, scheme := range crewSchemes {
		t.Run(scheme, func(t *testing.T) { poisonCrew(t, scheme) })
	}
}

func poisonCrew(t *testing.T, scheme string) {
	c := newCrew(t, scheme, poisonFlows)
	kinds := []string{"exit", "panic"}
	if memoryIsLimited {
		kinds = append(kinds, "memory")
	}
	const healthy = 20
	for i := range healthy {
		if i%7 == 3 && i/7 < len(kinds) {
			c.start("poison", kinds[i/7], kinds[i/7])
		}
		c.start("healthy", fmt.Sprintf("healthy-%d", i), i)
	}
	hands := []*member{nil, nil}
	deaths := map[string]int{} // by what the processes said last
	c.await("the poisonous are quarantined and the others end", func() (bool, string) {
		for i, m := range hands {
			if m == nil || m.gone() {
				if m != nil {
					deaths[m.lastWords()]++
				}
				hands[i] = c.hire(crewOrder{Version: "poison", Memory: 1 << 30})
			}
		}
		var left []string
		for s, err := range c.rt.List(c.Context(), perdure.ListOptions{}) {
			kit.NoErr(t, err)
			want := perdure.Succeeded
			if s.Flow == "poison" {
				want = perdure.Quarantined
			}
			if s.Status != want {
				left = append(left, fmt.Sprintf("%s is %s", s.ID, s.Status))
			}
		}
		return len(left) == 0, fmt.Sprintf("%q, deaths %v", left, deaths)
	})
	t.Logf("%d processes; what they said when they died: %v", len(c.members), deaths)
	for words := range deaths {
		if strings.HasPrefix(words, "fail ") {
			t.Errorf("a process that no run killed: %s", words)
		}
	}
	for _, kind := range kinds {
		run, err := c.rt.GetRun(c.Context(), kind, "")
		kit.NoErr(t, err)
		m, err := c.rt.PostMortem(c.Context(), kind, "")
		kit.NoErr(t, err)
		if m.Deaths != 5 || m.Lost < 5 || len(m.Events) == 0 || run.Last != "/before" {
			t.Errorf("the run that dies of %s is %s, last %s, with the post-mortem %+v", kind, run.Status, run.Last, m)
		}
	}
	for i := range healthy {
		id := fmt.Sprintf("healthy-%d", i)
		run, err := c.rt.GetRun(c.Context(), id, "")
		if err != nil || string(run.Output) != fmt.Sprint(i+5) || run.Retries != 0 {
			t.Errorf("%s: %+v, %v", id, run, err)
		}
	}
	c.dismiss(hands)

	hands = []*member{c.hire(crewOrder{Version: "mended"})}
	for _, kind := range kinds {
		kit.NoErr(t, c.rt.Retry(c.Context(), kind, "", perdure.Note{By: "test"}))
		if run, err := c.rt.WaitEnd(c.Context(), kind, ""); err != nil || string(run.Output) != `"mended"` || run.Steps != 2 {
			t.Errorf("the mended run: %+v, %v", run, err)
		}
	}
	c.dismiss(hands)
}

// start starts a run on a thread of its own.
func (c *crew) start(flow, thread string, in any) {
	c.Helper()
	if _, err := c.rt.Start(c.Context(), perdure.StartRequest{Flow: flow, Thread: thread, Input: in}); err != nil {
		c.Fatal(err)
	}
}

// lastWords is what a process that is gone died of.
func (m *member) lastWords() string {
	m.mu.Lock()
	defer m.mu.Unlock()
	lines := strings.Split(m.stderr.String(), "\n")
	for _, prefix := range []string{"panic: ", "fatal error: "} {
		if i := slices.IndexFunc(lines, func(l string) bool { return strings.HasPrefix(l, prefix) }); i >= 0 {
			return lines[i]
		}
	}
	if i := slices.IndexFunc(m.said, func(s string) bool { return strings.HasPrefix(s, "fail ") }); i >= 0 {
		return m.said[i]
	}
	return fmt.Sprint("exit ", m.code)
}

func poisonFlows(order crewOrder) []perdure.Flow {
	return []perdure.Flow{
		perdure.NewFlow("poison", func(ctx context.Context, kind string) (string, error) {
			before := func(context.Context) (string, error) { return kind, nil }
			if _, err := perdure.Step(ctx, "before", before); err != nil {
				return "", err
			}
			if order.Version == "poison" {
				return "", errors.Join(errors.New("it is still alive"), poison(kind))
			}
			return perdure.Step(ctx, "after", func(context.Context) (string, error) { return order.Version, nil })
		}),
		perdure.NewFlow("healthy", func(ctx context.Context, n int) (int, error) {
			for i := range 5 {
				if i == 3 {
					if err := perdure.Sleep(ctx, "nap", 30*time.Millisecond); err != nil {
						return 0, err
					}
				}
				one, err := perdure.Step(ctx, fmt.Sprint("step-", i), func(context.Context) (int, error) {
					<-time.After(rand.N(20 * time.Millisecond))
					return 1, nil
				})
				if err != nil {
					return 0, err
				}
				n += one
			}
			return n, nil
		}),
	}
}

// poison ends the process.
func poison(kind string) error {
	switch kind {
	case "exit":
		os.Exit(7)
	case "panic":
		go func() { panic("poison") }()
		select {}
	case "memory":
		var all [][]byte
		for range 256 { // 4 GiB, which is not touched and so not taken
			all = append(all, make([]byte, 16<<20))
		}
		return fmt.Errorf("there is memory for %d pieces", len(all))
	}
	return fmt.Errorf("%q is no poison", kind)
}

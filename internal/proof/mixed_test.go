//go:build darwin || freebsd || linux || netbsd || openbsd

package proof_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/kit"
)

// TestMixedVersions has processes with old and with new code on one store, as in
// a deploy that takes its time. A run that one of them cannot go on with is
// blocked, with a diff, until the other is there; nothing is lost or done twice.
func TestMixedVersions(t *testing.T) {
	for _, scheme := range crewSchemes {
		t.Run(scheme, func(t *testing.T) { mixedVersions(t, scheme) })
	}
}

func mixedVersions(t *testing.T, scheme string) {
	m := &mixed{crew: newCrew(t, scheme, mixedFlows)}
	const each = 6
	flows := []string{"inserted", "renamed", "told"}
	var early, late []string // threads that old code gets beyond the change, and others
	for _, flow := range flows {
		for i := range each {
			id := fmt.Sprintf("%s-%d", flow, i)
			m.start(flow, id, id)
			if i%2 == 0 {
				early = append(early, id)
			} else {
				late = append(late, id)
			}
		}
	}
	old := []*member{m.hire(crewOrder{Version: "old"}), m.hire(crewOrder{Version: "old"})}
	m.stand("they wait for the first answer", slices.Concat(early, late), asksAt("/one"))
	m.answerAll(early, "/one")
	m.stand("they wait for the second answer", early, asksAt("/two"))
	m.dismiss(old)

	// Only new code is there.
	hands := []*member{m.hire(crewOrder{Version: "new"}), m.hire(crewOrder{Version: "new"})}
	m.answerAll(late, "/one")
	m.answerAll(early, "/two")
	m.stand("they wait for the second answer", late, asksAt("/two"))
	m.stand("they are blocked with a diff, unless the new code tells what it changed", early, func(r *perdure.Run) bool {
		if r.Flow == "told" {
			return r.Status == perdure.Succeeded
		}
		return r.Status == perdure.Blocked && strings.Contains(r.Diff, "b") && r.Version == "new"
	})
	var fresh []string
	for _, flow := range flows {
		for i := range each {
			id := fmt.Sprintf("%s-%d", flow, each+i)
			m.start(flow, id, id)
			fresh = append(fresh, id)
		}
	}

	// And then both.
	hands = append(hands, m.hire(crewOrder{Version: "old"}), m.hire(crewOrder{Version: "old"}))
	all := slices.Concat(early, late, fresh)
	blocked := map[string]bool{}
	m.stand("all end", all, func(r *perdure.Run) bool {
		if r.Status == perdure.Blocked {
			blocked[r.ID] = true
		}
		m.answer(r, "")
		return r.Status == perdure.Succeeded
	})
	t.Logf("%d of %d runs were seen blocked while there was code for them", len(blocked), len(all))
	m.dismiss(hands)

	want := map[string][]string{
		"inserted": {"a b c", "a x b c"},
		"renamed":  {"a b c"},
		"told":     {"a b c", "a x b c"},
	}
	for _, id := range all {
		run, err := m.rt.GetRun(t.Context(), id, "")
		kit.NoErr(t, err)
		out, err := perdure.Output[string](run)
		if err != nil || !slices.Contains(want[run.Flow], out) {
			t.Errorf("%s returned %q, %v", id, out, err)
		}
		if isEarly, x := slices.Contains(early, id), strings.Contains(out, "x"); run.Flow == "inserted" && (isEarly && x || slices.Contains(late, id) && !x) {
			t.Errorf("%s returned %q although it had got beyond the change", id, out)
		}
		m.doneOnce(id, out)
	}
}

// mixed is one execution of TestMixedVersions.
type mixed struct{ *crew }

// stand awaits that all threads are so.
func (m *mixed) stand(what string, threads []string, so func(*perdure.Run) bool) {
	m.Helper()
	m.await(what, func() (bool, string) {
		var left []string
		for _, id := range threads {
			run, err := m.rt.GetRun(m.Context(), id, "")
			if err != nil {
				m.Fatal(err)
			}
			if !so(run) {
				left = append(left, fmt.Sprintf("%s is %s after %s %s%s", id, run.Status, run.Last, run.Diff, run.Error))
			}
		}
		return len(left) == 0, strings.Join(left, "\n")
	})
}

func asksAt(path string) func(*perdure.Run) bool {
	return func(r *perdure.Run) bool {
		return r.Status == perdure.Suspended && len(r.Asks) == 1 && r.Asks[0].Path == path
	}
}

func (m *mixed) answerAll(threads []string, path string) {
	for _, id := range threads {
		run, err := m.rt.GetRun(m.Context(), id, "")
		if err != nil {
			m.Fatal(err)
		}
		m.answer(run, path)
	}
}

// answer answers what a run asks at a path, "" for any.
func (m *mixed) answer(run *perdure.Run, path string) {
	for _, ask := range run.Asks {
		if path != "" && path != ask.Path {
			continue
		}
		err := m.rt.Answer(m.Context(), perdure.AskAnswer{Ask: ask.ID, Answer: perdure.Answer{Value: "yes"}})
		if err != nil && !errors.Is(err, perdure.ErrAskOver) {
			m.Fatal(err)
		}
	}
}

// doneOnce demands that a thread did exactly what it returned, each step once.
func (m *mixed) doneOnce(id, out string) {
	var did []string
	for e, err := range m.rt.Events(m.Context(), id, perdure.EventOptions{Replay: true}) {
		if err != nil {
			m.Fatal(err)
		}
		if e.Kind == "step" {
			did = append(did, strings.Trim(string(e.Value), `"`))
		}
	}
	if want := strings.Fields(out); !slices.Equal(slices.Sorted(slices.Values(did)), slices.Sorted(slices.Values(want))) {
		m.Errorf("%s returned %q and has recorded %q", id, out, did)
	}
}

// mixedFlows are as the order's version has them. In the new one there is a step
// more before b in the first, b has another name in the second, and both in the
// third, which tells it.
func mixedFlows(order crewOrder) []perdure.Flow {
	return []perdure.Flow{
		mixedFlow("inserted", order.Version == "new", "b", nil, nil),
		mixedFlow("renamed", false, map[bool]string{true: "bb"}[order.Version == "new"], nil, nil),
		mixedFlow("told", order.Version == "new", map[bool]string{true: "bb"}[order.Version == "new"],
			[]perdure.StepOption{perdure.Added()}, []perdure.StepOption{perdure.Renamed("b")}),
	}
}

func mixedFlow(name string, inserted bool, b string, added, renamed []perdure.StepOption) perdure.Flow {
	if b == "" || b == "b" {
		b, renamed = "b", nil
	}
	return perdure.NewFlow(name, func(ctx context.Context, _ string) (string, error) {
		var out []string
		step := func(name, value string, opts ...perdure.StepOption) error {
			v, err := perdure.Step(ctx, name, func(context.Context) (string, error) { return value, nil }, opts...)
			out = append(out, v)
			return err
		}
		ask := func(name string) error {
			_, err := perdure.Ask[string](ctx, name, perdure.Question{Prompt: name})
			return err
		}
		if err := step("a", "a"); err != nil {
			return "", err
		}
		if err := ask("one"); err != nil {
			return "", err
		}
		if inserted {
			if err := step("x", "x", added...); err != nil {
				return "", err
			}
		}
		if err := step(b, "b", renamed...); err != nil {
			return "", err
		}
		if err := perdure.Sleep(ctx, "nap", 20*time.Millisecond); err != nil {
			return "", err
		}
		if err := ask("two"); err != nil {
			return "", err
		}
		err := step("c", "c")
		return strings.Join(out, " "), err
	})
}

//go:build darwin || freebsd || linux || netbsd || openbsd

package proof_test

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/kit"
)

// TestMixedVersions has processes with old and with new code on one store, as in
// a deploy that takes its time. A run that one of them cannot go on with is
// blocked, with a diff, until the other is there; nothing is lost or done twice. With
// -short they share a store that TestChaos leaves out then.
func TestMixedVersions(t *testing.T) {
	for _, scheme := range crewSchemes[kit.Sized(len(crewSchemes)-1, 0, 0):] {
		t.Run(scheme, func(t *testing.T) { mixedVersions(&mixed{newCrew(t, scheme, mixedFlows)}) })
	}
}

// TestOlderPrograms has workers of an older version of this repository on a store
// that they made. They go on to work when new ones open it, which brings it to their
// own format, and all runs end.
func TestOlderPrograms(t *testing.T) {
	if testing.Short() {
		t.Skip("the older programs take a minute to build; TestMixedVersions is the short form")
	}
	for _, c := range []struct{ scheme, commit, test string }{
		{"sqlite", "2405f6fffe3fff5b834f74e149168e416e8fc627", "TestMixedVersions"}, // before there was another database
		{"postgres", "23573e55db4d9268d056336c87e3a83ba3ac1a9d", "TestMixedVersions/postgres"},
	} {
		t.Run(c.scheme, func(t *testing.T) {
			var old []*member
			m := &mixed{newCrewAfter(t, c.scheme, mixedFlows, func(crew *crew) {
				crew.older, crew.test = olderProgram(t, c.commit), c.test
				for range 2 {
					old = append(old, crew.hire(crewOrder{Version: "old"}))
				}
				for _, o := range old {
					<-o.up
				}
				crew.test = t.Name()
			})}
			early := m.startEach(0)
			m.stand("they wait for the first answer", early, asksAt("/one"))
			m.answerAll(early, "/one")
			m.stand("they wait for the second answer", early, asksAt("/two"))
			hands := []*member{m.hire(crewOrder{Version: "new"}), m.hire(crewOrder{Version: "new"})}
			all := slices.Concat(early, m.startEach(each))
			m.allEnd(all)
			m.dismiss(slices.Concat(old, hands))
			m.check(all, early, nil)
		})
	}
}

// olderProgram builds the tests of this package as they were at a commit.
func olderProgram(t *testing.T, commit string) string {
	t.Helper()
	dir := t.TempDir()
	program := filepath.Join(dir, "older.test")
	out, err := exec.Command("sh", "-c", `set -e; git cat-file -e "$0^{commit}"; cd "$(git rev-parse --show-toplevel)"; git archive "$0" | tar -x -C "$1"; cd "$1"; go test -c -o "$2" ./internal/proof`,
		commit, dir, program).CombinedOutput()
	if err != nil && exec.Command("git", "cat-file", "-e", commit+"^{commit}").Run() != nil {
		t.Skipf("this needs a clone with its history, at least to %s", commit)
	}
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return program
}

const each = 6 // threads of a flow that are started at a time

// startEach starts threads of each flow, and numbers them from first.
func (m *mixed) startEach(first int) (threads []string) {
	for _, flow := range []string{"inserted", "renamed", "told"} {
		for i := range each {
			id := fmt.Sprintf("%s-%d", flow, first+i)
			m.start(flow, id, id)
			threads = append(threads, id)
		}
	}
	return threads
}

func mixedVersions(m *mixed) {
	var early, late []string // threads that old code gets beyond the change, and others
	for i, id := range m.startEach(0) {
		if i%2 == 0 {
			early = append(early, id)
		} else {
			late = append(late, id)
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
	fresh := m.startEach(each)

	// And then both.
	hands = append(hands, m.hire(crewOrder{Version: "old"}), m.hire(crewOrder{Version: "old"}))
	all := slices.Concat(early, late, fresh)
	m.allEnd(all)
	m.dismiss(hands)
	m.check(all, early, late)
}

// allEnd answers everything until all runs have ended.
func (m *mixed) allEnd(threads []string) {
	m.Helper()
	blocked := map[string]bool{}
	m.stand("all end", threads, func(r *perdure.Run) bool {
		if r.Status == perdure.Blocked {
			blocked[r.ID] = true
		}
		m.answer(r, "")
		return r.Status == perdure.Succeeded
	})
	m.Logf("%d of %d runs were seen blocked while there was code for them", len(blocked), len(threads))
}

// check demands that runs returned what their code returns, and did each thing once.
// Early ones had got beyond the change when the new code came, and late ones had not.
func (m *mixed) check(all, early, late []string) {
	m.Helper()
	want := map[string][]string{
		"inserted": {"a b c", "a x b c"},
		"renamed":  {"a b c"},
		"told":     {"a b c", "a x b c"},
	}
	for _, id := range all {
		run, err := m.rt.GetRun(m.Context(), id, "")
		kit.NoErr(m.T, err)
		out, err := perdure.Output[string](run)
		if err != nil || !slices.Contains(want[run.Flow], out) {
			m.Errorf("%s returned %q, %v", id, out, err)
		}
		if isEarly, x := slices.Contains(early, id), strings.Contains(out, "x"); run.Flow == "inserted" && (isEarly && x || slices.Contains(late, id) && !x) {
			m.Errorf("%s returned %q although it had got beyond the change", id, out)
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

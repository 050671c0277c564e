package perdure_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/journal"
	"github.com/perdure/perdure/store"
)

// bubble runs a test in virtual time.
func bubble(t *testing.T, name string, fn func(t *testing.T)) {
	t.Helper()
	t.Run(name, func(t *testing.T) { synctest.Test(t, fn) })
}

// wantErr expects an error of a kind.
func wantErr(t *testing.T, what string, got, want error) {
	t.Helper()
	if want == nil && got != nil || want != nil && !errors.Is(got, want) {
		t.Errorf("%s: got error %v, want %v", what, got, want)
	}
}

// wantOutput expects what a run returned.
func wantOutput[T comparable](t *testing.T, run *perdure.Run, want T) {
	t.Helper()
	got, err := perdure.Output[T](run)
	if err != nil || got != want {
		t.Errorf("output is %v, %v; want %v", got, err, want)
	}
}

// begin starts a run as asked.
func (k *kit) begin(q perdure.StartRequest) *perdure.Run {
	k.t.Helper()
	run, err := k.Start(k.t.Context(), q)
	if err != nil {
		k.t.Fatal(err)
	}
	return run
}

// waitRun waits until a run of a thread stands, and expects a status. A minute
// of virtual time without that is a failure.
func (k *kit) waitRun(thread, id string, want perdure.Status) *perdure.Run {
	k.t.Helper()
	ctx, cancel := context.WithTimeout(k.t.Context(), time.Minute)
	defer cancel()
	run, err := k.Wait(ctx, thread, id)
	if err != nil {
		k.t.Fatalf("waiting for run %s of %s: %v\n%s", id, thread, err, k.trace(thread))
	}
	if run.Status != want {
		k.t.Fatalf("run %s is %s, want %s (%s%s)\n%s", id, run.Status, want, run.Error, run.Diff, k.trace(thread))
	}
	return run
}

// at returns the open ask at a path.
func (k *kit) at(run *perdure.Run, path string) perdure.AskInfo {
	k.t.Helper()
	for _, a := range run.Asks {
		if a.Path == path {
			return a
		}
	}
	k.t.Fatalf("no open ask at %s: %+v", path, run.Asks)
	return perdure.AskInfo{}
}

// reply answers one ask and returns what came of it.
func (k *kit) reply(ask string, a perdure.Answer) error {
	return k.Answer(k.t.Context(), perdure.AskAnswer{Ask: ask, Answer: a})
}

// kinds returns how often each kind of event happened on a thread.
func (k *kit) kinds(thread string) map[string]int {
	k.t.Helper()
	n := map[string]int{}
	for _, e := range k.events(thread) {
		n[e.Kind]++
	}
	return n
}

// events returns the events of a thread so far.
func (k *kit) events(thread string) []perdure.Event {
	k.t.Helper()
	var all []perdure.Event
	for e, err := range k.Events(context.Background(), thread, perdure.EventOptions{Replay: true}) {
		if err != nil {
			k.t.Fatal(err)
		}
		all = append(all, e)
	}
	return all
}

// problems returns the texts of the problem events of a thread.
func (k *kit) problems(thread string) []string {
	var texts []string
	for _, e := range k.events(thread) {
		if e.Kind == string(journal.Problem) {
			texts = append(texts, e.Error)
		}
	}
	return texts
}

// journalsOf returns the names of the threads' journals, oldest first.
func journalsOf(t *testing.T, s store.Store) []string {
	t.Helper()
	var names []string
	for name, err := range s.Journals(context.Background(), "") {
		if err != nil {
			t.Fatal(err)
		}
		if strings.HasPrefix(name, "thread/") {
			names = append(names, name)
		}
	}
	slices.SortFunc(names, func(a, b string) int {
		_, a, _ = strings.Cut(a, ".")
		_, b, _ = strings.Cut(b, ".")
		return strings.Compare(a, b)
	})
	return names
}

// endOf returns the last sequence of a journal and the hash there.
func endOf(t *testing.T, s store.Store, name string) (uint64, journal.Hash) {
	t.Helper()
	lines, err := store.ReadAll(context.Background(), s, name, 0)
	if err != nil {
		t.Fatal(err)
	}
	var prev journal.Hash
	for _, l := range lines {
		e, err := journal.Decode(prev, l.Seq, l.Data)
		if err != nil {
			t.Fatal(err)
		}
		prev = e.Hash
	}
	return uint64(len(lines)), prev
}

// echoFlow is a flow that returns its input.
func echoFlow(name string) perdure.Flow {
	return perdure.NewFlow(name, func(_ context.Context, in string) (string, error) { return in, nil })
}

// askFlow is a flow that asks once, at /ask, and returns the answer.
func askFlow(name string, q perdure.Question) perdure.Flow {
	return perdure.NewFlow(name, func(ctx context.Context, _ string) (string, error) {
		return perdure.Ask[string](ctx, "ask", q)
	})
}

package sqlitestore_test

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/store"
	"github.com/perdure/perdure/store/sqlitestore"
)

// table returns the rows of a query, of which a test compares the text.
func table(t *testing.T, dir, query string) (rows []string) {
	t.Helper()
	c := rawConn(t, dir)
	defer c.Close()
	all, err := queryRows(c, query)
	if err != nil {
		t.Fatalf("%s: %v", query, err)
	}
	for _, r := range all {
		line := ""
		for _, v := range r {
			if b, ok := v.([]byte); ok {
				v = string(b)
			}
			line += fmt.Sprint(v, "|")
		}
		rows = append(rows, line)
	}
	return rows
}

// TestViews looks at threads, runs and open asks as a person with SQLite's shell
// would, while a runtime works on the file, and compares them with its own
// answers.
func TestViews(t *testing.T) {
	dir := t.TempDir()
	refund := perdure.NewFlow("refund", func(ctx context.Context, order string) (string, error) {
		if _, err := perdure.Step(ctx, "find", func(context.Context) (string, error) { return "order " + order, nil }); err != nil {
			return "", err
		}
		checks := perdure.NewGroup(ctx)
		checks.Go("check", func(ctx context.Context) error {
			_, err := perdure.Ask[bool](ctx, "approve", perdure.Question{Prompt: "Refund " + order + "?", Data: order})
			return err
		})
		return "paid " + order, checks.Wait()
	})
	s := openTest(t, dir)
	rt, err := perdure.New(t.Context(), s, perdure.Options{}, refund)
	if err != nil {
		t.Fatal(err)
	}
	defer rt.Close()
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error)
	go func() { done <- rt.Work(ctx) }()
	defer func() { stop(); <-done }()

	var asks []string
	for _, thread := range []string{"one", "two", "three", "four"} {
		run, err := rt.Start(ctx, perdure.StartRequest{Thread: thread, Flow: "refund", Input: thread})
		if err != nil {
			t.Fatal(err)
		}
		if run, err = rt.Wait(ctx, thread, run.ID); err != nil || len(run.Asks) != 1 {
			t.Fatalf("run of %s: %+v, %v", thread, run, err)
		}
		asks = append(asks, run.Asks[0].ID)
	}
	if err := rt.Answer(ctx, perdure.AskAnswer{Ask: asks[1], Answer: perdure.Answer{Value: true}}); err != nil {
		t.Fatal(err)
	}
	two, err := rt.Get(ctx, "two")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := rt.WaitEnd(ctx, "two", two.Runs[0].ID); err != nil {
		t.Fatal(err)
	}
	three, err := rt.Get(ctx, "three")
	if err != nil {
		t.Fatal(err)
	}
	if err := rt.Cancel(ctx, "three", three.Runs[0].ID, perdure.Note{}); err != nil {
		t.Fatal(err)
	}
	if _, err := rt.WaitEnd(ctx, "three", three.Runs[0].ID); err != nil {
		t.Fatal(err)
	}
	// A rewind takes back a second run, so it is as if that never was.
	if two, err = rt.Get(ctx, "two"); err != nil {
		t.Fatal(err)
	}
	again, err := rt.Start(ctx, perdure.StartRequest{Thread: "two", Flow: "refund", Input: "again"})
	if err == nil {
		again, err = rt.Wait(ctx, "two", again.ID)
	}
	if err == nil {
		err = rt.Cancel(ctx, "two", again.ID, perdure.Note{})
	}
	if err == nil {
		_, err = rt.WaitEnd(ctx, "two", again.ID)
	}
	if err == nil {
		_, err = rt.Rewind(ctx, "two", two.Seq, perdure.Note{})
	}
	if err != nil {
		t.Fatal(err)
	}
	if err := rt.Erase(ctx, "four", perdure.EraseOptions{}); err != nil {
		t.Fatal(err)
	}

	var threads, runs, open []string
	for sum, err := range rt.List(ctx, perdure.ListOptions{}) {
		if err != nil {
			t.Fatal(err)
		}
		threads = append(threads, fmt.Sprintf("%s|%s|%s|%d|", sum.ID, sum.Flow, sum.Status, sum.Asks))
		thread, err := rt.Get(ctx, sum.ID)
		if err != nil {
			t.Fatal(err)
		}
		for _, run := range thread.Runs {
			runs = append(runs, fmt.Sprintf("%s|%s|refund|%s|", thread.ID, run.ID, run.Status))
			for _, ask := range run.Asks {
				open = append(open, fmt.Sprintf("%s|%s|%s|%s|%s|", thread.ID, ask.ID, ask.Path, ask.Prompt, strings.Trim(string(ask.Data), `"`)))
			}
		}
	}
	if len(threads) != 3 || len(open) != 1 {
		t.Fatalf("the runtime lists %q and the asks %q", threads, open)
	}
	for query, want := range map[string][]string{
		"SELECT thread, flow, status, asks FROM threads ORDER BY thread":                            threads,
		"SELECT thread, run, flow, status FROM runs ORDER BY thread":                                runs,
		"SELECT thread, ask, path, prompt, data FROM asks ORDER BY thread":                          open,
		"SELECT count(*), sum(time > '2020') = count(*) FROM history":                               table(t, dir, "SELECT count(*), 1 FROM entries"),
		"SELECT DISTINCT path FROM history WHERE kind = 'asked'":                                    {"/check/approve|"},
		"SELECT json_extract(body, '$.res[0]') FROM history WHERE thread = 'one' AND kind = 'step'": {"order one|"},
	} {
		slices.Sort(want)
		got := table(t, dir, query)
		if slices.Sort(got); !slices.Equal(got, want) {
			t.Errorf("%s\ngives %q\nwant  %q", query, got, want)
		}
	}
}

// TestViewsOfOther looks at journals and cells that are no JSON, as those of an
// encrypted store.
func TestViewsOfOther(t *testing.T) {
	dir := t.TempDir()
	s, err := sqlitestore.Open(t.Context(), filepath.Join(dir, "test.db"), sqlitestore.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	for i, data := range []string{"\x00\xff", "", "{", "[1]", `"x"`, "{}", `{"k":{"k":1},"t":"x","b":[]}`} {
		for _, name := range []string{"thread/a", "other"} {
			if _, err := s.Append(t.Context(), name, uint64(i), []byte(data)); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := s.Put(t.Context(), fmt.Sprint("thread/", i), []byte(data), store.Version("")); err != nil {
			t.Fatal(err)
		}
	}
	for view, want := range map[string]int{"threads": 7, "history": 14, "runs": 0, "asks": 0} {
		if got := table(t, dir, "SELECT * FROM "+view); len(got) != want {
			t.Errorf("%s has %d rows, want %d: %q", view, len(got), want, got)
		}
	}
}

// TestViewsAreCreated where they lack or are older, unless something else has
// their name.
func TestViewsAreCreated(t *testing.T) {
	dir := t.TempDir()
	openTest(t, dir).Close()
	all := "SELECT type, name FROM sqlite_schema WHERE name IN ('threads', 'history', 'runs', 'asks') ORDER BY name"
	execFile(t, filepath.Join(dir, "test.db"), "DROP VIEW history; DROP VIEW asks; CREATE TABLE asks (mine); DROP VIEW runs; CREATE VIEW runs AS SELECT 1 AS old")
	for range 2 {
		s := openTest(t, dir)
		if _, err := s.Get(t.Context(), "c"); !errors.Is(err, store.ErrNotFound) {
			t.Error(err)
		}
		want := []string{"table|asks|", "view|history|", "view|runs|", "view|threads|"}
		if got := table(t, dir, all); !slices.Equal(got, want) {
			t.Errorf("the store has %q, want %q", got, want)
		}
		if got := table(t, dir, "SELECT run FROM runs"); len(got) > 0 {
			t.Errorf("runs has %q", got)
		}
		s.Close()
	}
}

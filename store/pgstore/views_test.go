package pgstore_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/pgtest"
)

// table returns the rows of a query in a schema as text.
func table(t *testing.T, url, query string) []string {
	t.Helper()
	config, err := pgx.ParseConfig(strings.Replace(url, "schema=", "search_path=", 1))
	if err != nil {
		t.Fatal(err)
	}
	c, err := pgx.ConnectConfig(t.Context(), config)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close(context.Background())
	rows, err := c.Query(t.Context(), query)
	if err != nil {
		t.Fatal(err)
	}
	lines, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (string, error) {
		line := ""
		values, err := row.Values()
		for _, v := range values {
			line += fmt.Sprint(v, "|")
		}
		return line, err
	})
	if err != nil {
		t.Fatalf("%s: %v", query, err)
	}
	slices.Sort(lines)
	return lines
}

// TestViews looks at threads, runs and open asks as a person with psql would, and
// compares them with the runtime's own answers.
func TestViews(t *testing.T) {
	url := pgtest.Schema(pgtest.URL(t), t.TempDir())
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
	rt, err := perdure.New(t.Context(), openSchema(t, url), perdure.Options{}, refund)
	if err != nil {
		t.Fatal(err)
	}
	defer rt.Close()
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error)
	go func() { done <- rt.Work(ctx) }()
	defer func() { stop(); <-done }()
	start := func(thread string) *perdure.Run {
		run, err := rt.Start(ctx, perdure.StartRequest{Thread: thread, Flow: "refund", Input: thread})
		if err == nil {
			run, err = rt.Wait(ctx, thread, run.ID)
		}
		if err != nil || len(run.Asks) != 1 {
			t.Fatalf("run of %s: %+v, %v", thread, run, err)
		}
		return run
	}
	end := func(thread string, run *perdure.Run, err error) {
		if err == nil {
			_, err = rt.WaitEnd(ctx, thread, run.ID)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	start("one")
	two, three := start("two"), start("three")
	end("two", two, rt.Answer(ctx, perdure.AskAnswer{Ask: two.Asks[0].ID, Answer: perdure.Answer{Value: true}}))
	end("three", three, rt.Cancel(ctx, "three", three.ID, perdure.Note{}))
	start("four")
	if err := rt.Erase(ctx, "four", perdure.EraseOptions{}); err != nil {
		t.Fatal(err)
	}
	// A rewind undoes a second run, as if it had never been.
	before, err := rt.Get(ctx, "two")
	if err != nil {
		t.Fatal(err)
	}
	again := start("two")
	end("two", again, rt.Cancel(ctx, "two", again.ID, perdure.Note{}))
	if _, err := rt.Rewind(ctx, "two", before.Seq, perdure.Note{}); err != nil {
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
		"SELECT thread, flow, status, asks FROM threads":                                          threads,
		"SELECT thread, run, flow, status FROM runs":                                              runs,
		"SELECT thread, ask, path, prompt, data FROM asks":                                        open,
		"SELECT count(*), count(*) FILTER (WHERE time > '2020-01-01') FROM history":               table(t, url, "SELECT count(*), count(*) FROM entries"),
		"SELECT DISTINCT path FROM history WHERE kind = 'asked'":                                  {"/check/approve|"},
		"SELECT body::json #>> '{res,0}' FROM history WHERE thread = 'one' AND kind = 'step'":     {"order one|"},
		"SELECT t.status FROM threads t JOIN runs r USING (thread) WHERE r.flow = 'x'":            nil,
		"SELECT DISTINCT thread FROM history WHERE thread IS NOT NULL AND kind IN ('none', 'no')": nil,
	} {
		slices.Sort(want)
		if got := table(t, url, query); !slices.Equal(got, want) {
			t.Errorf("%s\ngives %q\nwant  %q", query, got, want)
		}
	}
}

// TestViewsOfOther looks at journals and cells that are not JSON, like those of an
// encrypted store.
func TestViewsOfOther(t *testing.T) {
	url := pgtest.Schema(pgtest.URL(t), t.TempDir())
	s := openSchema(t, url)
	for i, data := range []string{"\x00\xff", "", "{", "[1]", `"x"`, "{}", `{"k":{"k":1},"t":"x","b":[]}`, `{"k":"queued\u0000"}`} {
		for _, name := range []string{"thread/a", "other"} {
			if _, err := s.Append(t.Context(), name, uint64(i), []byte(data)); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := s.Put(t.Context(), fmt.Sprint("thread/", i), []byte(data), ""); err != nil {
			t.Fatal(err)
		}
	}
	for view, want := range map[string]int{"threads": 8, "history": 16, "runs": 0, "asks": 0} {
		if got := table(t, url, "SELECT * FROM "+view); len(got) != want {
			t.Errorf("%s has %d rows, want %d: %q", view, len(got), want, got)
		}
	}
}

// TestViewsOfText shows text that PostgreSQL has no characters for: runs and asks
// keep their rows, and everything else in these.
func TestViewsOfText(t *testing.T) {
	const bad = "\ufffd"
	for encoding, fields := range map[string]map[string]string{
		"UTF8": {`a\u0000\u0000b`: "a" + bad + bad + "b", `\\u0000\\\u0000é`: `\u0000\` + bad + "é", `\ud800x\u00e9`: bad + "xé", `\ud83d\ude00`: "😀", `\ude00`: bad},
		// Here a server cannot tell what is no character.
		"SQL_ASCII": {`a\u0000\u0000b`: "a" + bad + bad + "b", `\u00e9\u20ac é\u0041`: bad + bad + " éA"},
	} {
		t.Run(encoding, func(t *testing.T) {
			base, name := pgtest.URL(t), pgtest.Name()
			admin(t, base, "CREATE DATABASE "+name+" ENCODING '"+encoding+"' TEMPLATE template0 LOCALE 'C'")
			t.Cleanup(func() { admin(t, base, "DROP DATABASE "+name+" WITH (FORCE)") })
			url := pgtest.With(strings.Replace(base, "/postgres?", "/"+name+"?", 1), "schema", "views")
			flow := perdure.NewFlow("echo", func(ctx context.Context, in string) (string, error) {
				return perdure.Ask[string](ctx, "say", perdure.Question{Prompt: in, Data: in})
			})
			rt, err := perdure.New(t.Context(), openSchema(t, url), perdure.Options{}, flow)
			if err != nil {
				t.Fatal(err)
			}
			defer rt.Close()
			ctx, stop := context.WithCancel(t.Context())
			done := make(chan error)
			go func() { done <- rt.Work(ctx) }()
			defer func() { stop(); <-done }()
			run, err := rt.Start(ctx, perdure.StartRequest{Thread: "t", Flow: "echo", Input: "n\x00ul", Title: "ti\x00tle"})
			if err == nil {
				run, err = rt.Wait(ctx, "t", run.ID)
			}
			if err != nil {
				t.Fatal(err)
			}
			entries := table(t, url, "SELECT count(*) FROM entries")
			for query, want := range map[string][]string{
				"SELECT thread, title, flow FROM threads":                                          {"t|ti" + bad + "tle|echo|"},
				"SELECT thread, run, flow, status FROM runs":                                       {"t|" + run.ID + "|echo|suspended|"},
				"SELECT thread, ask, path, prompt, data FROM asks":                                 {"t|" + run.Asks[0].ID + "|/say|n" + bad + "ul|n" + bad + "ul|"},
				"SELECT count(*) FROM history WHERE num_nulls(thread, kind, time, body) = 0":       entries,
				"SELECT count(*) FROM history WHERE body::json IS NOT NULL AND thread IS NOT NULL": entries,
			} {
				if got := table(t, url, query); !slices.Equal(got, want) {
					t.Errorf("%s\ngives %q\nwant  %q", query, got, want)
				}
			}
			for text, want := range fields {
				query := `SELECT field('` + fmt.Sprintf(`\x%x`, `{"k":{"v":"`+text+`"}}`) + `', 'k', 'v')`
				if got := table(t, url, query); len(got) != 1 || got[0] != want+"|" {
					t.Errorf("%s is shown as %q, want %q", text, got, want)
				}
			}
		})
	}
}

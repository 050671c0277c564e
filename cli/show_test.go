package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/api"
	"github.com/perdure/perdure/cli/internal/exit"
	"github.com/perdure/perdure/internal/terminal"
	"github.com/perdure/perdure/store"
)

// TestAGroupThatFailedFast shows which branch failed, and what was closed by it.
func TestAGroupThatFailedFast(t *testing.T) {
	p := stored(t)
	watching, err := perdure.Open(t.Context(), p.flags[1])
	if err != nil {
		t.Fatal(err)
	}
	defer watching.Close()
	p.flows = append(p.flows, perdure.NewFlow("race", func(ctx context.Context, _ any) (string, error) {
		g := perdure.NewGroup(ctx, perdure.FailFast())
		g.Go("bad", func(ctx context.Context) error {
			_, err := perdure.Step(ctx, "call", func(ctx context.Context) (int, error) {
				for e, err := range watching.Events(ctx, "t", perdure.EventOptions{}) {
					if err != nil {
						return 0, err
					}
					if e.Path == "/slow/paid" { // it waits
						break
					}
				}
				return 0, errBroken
			})
			return err
		})
		g.Go("slow", func(ctx context.Context) error {
			_, err := perdure.Receive[string](ctx, "paid", "payment", 0)
			return err
		})
		return "", g.Wait()
	}))
	p.run("", "run", "race", "--thread", "t").want(exit.Failed, "the supplier is")
	p.run("", "show", "t").want(exit.OK, "✗ bad ", "✗   call ", "· slow/paid ", "given up: for the signal payment")
}

func TestARunThatStandsNamesTheRemedy(t *testing.T) {
	for status, want := range map[perdure.Status]string{
		perdure.Blocked: "start a worker with code that fits", perdure.Quarantined: "kills its workers", perdure.Failed: "perdure retry t r", perdure.Paused: "perdure resume t r", perdure.Running: "",
	} {
		var out bytes.Buffer
		a := testApp(terminal.Terminal{Out: &out})
		a.runNext(&perdure.Run{ID: "r", Thread: "t", Status: status})
		if !strings.Contains(out.String(), want) || strings.Contains(out.String(), "next") != (want != "") {
			t.Errorf("of a run that is %s it says:\n%s", status, out.String())
		}
	}
}

// TestShowNamesAFullStore beside a thread that should move, and only there.
func TestShowNamesAFullStore(t *testing.T) {
	answers := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", api.TypeJSON)
		_ = json.NewEncoder(w).Encode(api.Stats{Warnings: []store.Warning{{Kind: store.WarnNode, Detail: "another"}, {Kind: store.WarnSpace, Detail: "20 of 20 are in use", Fix: "raise it"}}})
	})
	site := httptest.NewServer(answers)
	defer site.Close()
	for status, want := range map[perdure.Status]string{perdure.Running: "store    20 of 20 are in use; raise it\n", perdure.Queued: "store    20 of 20 are in use; raise it\n", perdure.Suspended: "", perdure.Succeeded: ""} {
		var out bytes.Buffer
		a := testApp(terminal.Terminal{Out: &out})
		l, err := a.conn.Dial(site.URL, "")
		if err != nil {
			t.Fatal(err)
		}
		if a.storeWarns(t.Context(), l, &perdure.Thread{Status: status}); out.String() != want {
			t.Errorf("of a thread that is %s it says %q, want %q", status, out.String(), want)
		}
	}
}

func TestShowSaysUntilWhen(t *testing.T) {
	var out bytes.Buffer
	a := testApp(terminal.Terminal{Out: &out})
	at := time.Date(2000, 1, 2, 3, 4, 0, 0, a.term.Clock().Location())
	for state, want := range map[perdure.WhyState]string{
		perdure.WhyRetry: "why      because (next attempt at 2000-01-02 03:04)\n", perdure.WhyPerson: "why      because (expires 2000-01-02 03:04)\n",
		perdure.WhySleep: "why      because (until 2000-01-02 03:04)\n", perdure.WhyDone: "",
	} {
		out.Reset()
		a.head(&perdure.Thread{ID: "t", Why: &perdure.Why{State: state, Text: "because", Until: at}})
		if !strings.Contains(out.String(), want) || want == "" && strings.Contains(out.String(), "because") {
			t.Errorf("of a thread that is %s it says:\n%s", state, out.String())
		}
	}
}

func TestThreadsAndShowLookTheSame(t *testing.T) {
	both(t, func(t *testing.T, p *place) {
		p.run("", "run", "order", "tea", "--thread", "t", "--title", "Tea \x1b]0;owned\x07for two", "--user", "ada", "--metadata", "shop=corner").want(exit.Waiting)
		p.run("", "run", "fail", "x", "--thread", "broken", "--user", "bob").want(exit.Failed)
		p.run("", "run", "echo", "x", "--thread", "fine", "--user", "bob").want(exit.OK)
		for range 1000 { // the list may lag
			if !strings.Contains(p.run("", "threads").out, " running ") {
				break
			}
		}
		golden(t, "threads.txt", steady(p.run("", "threads").want(exit.OK).out))
		golden(t, "show.txt", steady(p.run("", "show", "t").want(exit.OK).out))
		golden(t, "show-failed.txt", steady(p.run("", "show", "broken").want(exit.OK).out))
		golden(t, "asks.txt", steady(p.run("", "asks").want(exit.OK).out))
		golden(t, "events.txt", steady(p.run("", "events", "t").want(exit.OK).out))
		r := p.run("", "threads", "--user", "bob", "--status", "failed").want(exit.OK, "broken")
		if strings.Contains(r.out, "fine") || strings.Contains(r.out, "t ") {
			t.Errorf("the filters do nothing:\n%s", r.out)
		}
		p.run("", "threads", "--asks").want(exit.OK, "order")
		p.run("", "threads", "--limit", "1").want(exit.OK, "--after")
		p.run("", "threads", "--limit", "x").want(exit.BadUsage, "--limit")
		p.run("", "threads", "--updated", "yesterday").want(exit.BadUsage, "--updated")
		p.run("", "show", "nope").want(exit.NotFound, "perdure threads")
		p.run("", "show", "t", "nope").want(exit.NotFound)
		p.run("", "show", "t", "newest").want(exit.OK, "order")
		p.run("", "events", "t", "--after", "999").want(exit.BadUsage)
		p.run("", "events", "nope").want(exit.NotFound)
	})
}

// TestShowOfManyRuns shows the newest and says how to see the others.
func TestShowOfManyRuns(t *testing.T) {
	p := stored(t)
	for _, in := range []string{"first", "second", "third"} {
		p.run("", "run", "echo", in, "--thread", "t").want(exit.OK)
	}
	r := p.run("", "show", "t", "--runs", "1").want(exit.OK, "third", "2 earlier runs", "--runs 0")
	if strings.Contains(r.out, "second") {
		t.Errorf("more than the newest run is shown:\n%s", r.out)
	}
	if r := p.run("", "show", "t", "--runs", "0").want(exit.OK, "first", "second", "third"); strings.Contains(r.out, "earlier") {
		t.Errorf("there are no earlier runs:\n%s", r.out)
	}
	p.run("", "show", "t", "--runs", "2", "--json").want(exit.OK, `"earlier": 1`)
	p.run("", "show", "t", "--runs", "-1").want(exit.BadUsage, "--runs is how many", "0 for all")
	p.run("", "show", "t", "--runs", "x").want(exit.BadUsage, "whole number")
}

func TestThreadsSayWhy(t *testing.T) {
	both(t, func(t *testing.T, p *place) {
		p.run("", "run", "wait", "x", "--thread", "t1", "--detach")
		if out := p.run("", "threads", "--why").out; !strings.Contains(out, "WHY") || !strings.Contains(out, "t1") {
			t.Errorf("it prints %s", out)
		}
	})
}

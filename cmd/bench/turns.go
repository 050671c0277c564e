package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"sync"
	"text/tabwriter"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/store"
	"github.com/perdure/perdure/store/memstore"
	"github.com/perdure/perdure/store/observed"
)

// went tells when the step behind a wait has begun.
var went = make(chan time.Time, 1)

// turn is a flow of one step.
var turn = perdure.NewFlow("turn", func(ctx context.Context, n int) (int, error) {
	return perdure.Step(ctx, "step", func(context.Context) (int, error) { return n + 1, nil })
})

// answered and signalled are flows that wait n times, each time with a step behind.
var answered = waits("answered", func(ctx context.Context, name string) error {
	_, err := perdure.Ask[bool](ctx, name, perdure.Question{Prompt: "go on?"})
	return err
})

var signalled = waits("signalled", func(ctx context.Context, name string) error {
	_, err := perdure.Receive[int](ctx, name, "go", 0)
	return err
})

func waits(name string, wait func(ctx context.Context, name string) error) perdure.Flow {
	return perdure.NewFlow(name, func(ctx context.Context, n int) (int, error) {
		for i := range n {
			if err := wait(ctx, fmt.Sprint("wait-", i)); err != nil {
				return 0, err
			}
			if _, err := perdure.Step(ctx, fmt.Sprint("step-", i), func(context.Context) (int, error) {
				went <- time.Now()
				return i, nil
			}); err != nil {
				return 0, err
			}
		}
		return n, nil
	})
}

// turns measures what surrounds the steps of a run: starts, ends and wake-ups.
func turns(ctx context.Context, dir string) error {
	fmt.Printf("\nTurns: a run of one step, from Start to WaitEnd, beside appends in the same store:\n")
	stores := []turnStore{
		{"memstore", func(context.Context, string) (store.Store, error) { return memstore.New(), nil }},
		{"filestore", openFile},
		{"sqlitestore", openSQLite},
	}
	if err := turnTable(ctx, dir, stores); err != nil {
		return err
	}
	return countWrites(ctx, dir)
}

// turnStore is a kind of store for turnTable, opened in a folder.
type turnStore struct {
	name string
	open func(ctx context.Context, dir string) (store.Store, error)
}

// turnTable prints a line for each store.
func turnTable(ctx context.Context, dir string, stores []turnStore) error {
	w := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(w, "\tappend p50\t1 client/s\tp50\tp99\t8/s\tp50\tp99\t64/s\tp50\tp99\tanswer p50\tp99\tsignal p50\tp99\tHTTP p50\tp99\t")
	var verdicts []func()
	for _, s := range stores {
		folder, err := os.MkdirTemp(dir, "turns-")
		if err != nil {
			return err
		}
		opened, err := s.open(ctx, folder)
		if err != nil {
			return err
		}
		line, judge, err := turnsOn(ctx, s.name, opened)
		if err = errors.Join(err, opened.Close()); err != nil {
			return fmt.Errorf("turns on %s: %w", s.name, err)
		}
		verdicts = append(verdicts, judge)
		fmt.Fprintf(w, "%s\t%s\t\n", s.name, line)
	}
	w.Flush()
	fmt.Println("answer and signal: from the call to the next step's function; HTTP: from POST of a run to its first event at a reader.")
	for _, judge := range verdicts {
		judge()
	}
	return nil
}

// turnsOn measures turns on one store, and returns a line of the table and what
// prints the verdicts.
func turnsOn(ctx context.Context, name string, s store.Store) (string, func(), error) {
	rt, stop, err := working(ctx, s, turn, answered, signalled)
	if err != nil {
		return "", nil, err
	}
	defer stop()
	var appends, appends64 series
	t, data := storeTarget{s}, entry()
	if err := errors.Join(appends64.writers(ctx, t, 64, 64*100, 0, data), appends.writers(ctx, t, 1, 1500, 0, data)); err != nil {
		return "", nil, err
	}
	cols := []string{short(appends.p(50))}
	var rates []float64
	var all []series
	for _, clients := range []int{1, 8, 64} {
		of := series{}
		if err := of.clients(ctx, rt, clients, 150*min(clients, 20)); err != nil {
			return "", nil, err
		}
		rates, all = append(rates, of.rate()), append(all, of)
		cols = append(cols, fmt.Sprintf("%.0f", of.rate()), short(of.p(50)), short(of.p(99)))
	}
	for _, measure := range []func(context.Context, *perdure.Runtime) (series, error){answers, signals, firstEvents} {
		of, err := measure(ctx, rt)
		if err != nil {
			return "", nil, err
		}
		cols = append(cols, short(of.p(50)), short(of.p(99)))
	}
	return strings.Join(cols, "\t"), func() {
		if name == "memstore" {
			atMost("memstore: p50 of a turn at 1 client, ms", float64(all[0].p(50))/1e6, 0.5)
			return
		}
		atMost(name+": p50 of a turn at 1 client ÷ p50 of an append", float64(all[0].p(50))/float64(appends.p(50)), 10)
		expect(name+": turns/s of 64 clients ÷ appends/s of 64 writers", rates[2]/appends64.rate(), 0.15)
	}, nil
}

// clients lets n clients make turns one after the other, total together.
func (s *series) clients(ctx context.Context, rt *perdure.Runtime, n, total int) error {
	errs := make([]error, n)
	took := make([][]time.Duration, n)
	began := time.Now()
	var wg sync.WaitGroup
	for c := range n {
		wg.Go(func() {
			for range total / n {
				start := time.Now()
				run, err := rt.Start(ctx, perdure.StartRequest{Flow: "turn", Input: 1})
				if err == nil {
					err = succeed(ctx, rt, run.Thread, run.ID)
				}
				if err != nil {
					errs[c] = err
					return
				}
				took[c] = append(took[c], time.Since(start))
			}
		})
	}
	wg.Wait()
	s.rates = append(s.rates, float64(total)/time.Since(began).Seconds())
	for _, t := range took {
		s.latencies = append(s.latencies, t...)
	}
	return errors.Join(errs...)
}

const wakeUps = 100

// answers measures from an answer to the next step.
func answers(ctx context.Context, rt *perdure.Runtime) (s series, err error) {
	return s, s.wakeUps(ctx, rt, "answered", func(run *perdure.Run) error {
		return rt.Answer(ctx, perdure.AskAnswer{Ask: run.Asks[0].ID, Answer: perdure.Answer{Value: true}})
	})
}

// signals measures from a signal to the next step.
func signals(ctx context.Context, rt *perdure.Runtime) (s series, err error) {
	return s, s.wakeUps(ctx, rt, "signalled", func(run *perdure.Run) error {
		return rt.Signal(ctx, run.Thread, "go", 1, perdure.SignalOptions{})
	})
}

func (s *series) wakeUps(ctx context.Context, rt *perdure.Runtime, flow string, wake func(*perdure.Run) error) error {
	run, err := rt.Start(ctx, perdure.StartRequest{Flow: flow, Input: wakeUps})
	if err != nil {
		return err
	}
	for range wakeUps {
		if run, err = rt.Wait(ctx, run.Thread, ""); err != nil {
			return err
		}
		start := time.Now()
		if err := wake(run); err != nil {
			return err
		}
		select {
		case at := <-went:
			s.latencies = append(s.latencies, at.Sub(start))
		case <-time.After(time.Minute):
			return errors.New("a step does not begin")
		}
	}
	return succeed(ctx, rt, run.Thread, run.ID)
}

// firstEvents measures from the request that starts a run to the first event of
// its thread at a reader.
func firstEvents(ctx context.Context, rt *perdure.Runtime) (s series, err error) {
	srv := serve(rt)
	defer srv.Close()
	for i := range wakeUps {
		start := time.Now()
		thread := fmt.Sprint("http-", i)
		resp, err := http.Post(srv.URL+"/v1/threads/"+thread+"/runs", "application/json", bytes.NewBufferString(`{"flow":"turn","input":1}`))
		if err != nil {
			return s, err
		}
		io.Copy(io.Discard, resp.Body)
		resp.Body.Close()
		if resp.StatusCode >= 300 {
			return s, errors.New(resp.Status)
		}
		if err := readStream(ctx, srv.URL+"/v1/threads/"+thread+"/events", func([]byte) bool { return false }); err != nil {
			return s, err
		}
		s.latencies = append(s.latencies, time.Since(start))
		if err := succeed(ctx, rt, thread, ""); err != nil {
			return s, err
		}
	}
	return s, nil
}

// countWrites counts what a turn writes and reads.
func countWrites(ctx context.Context, dir string) error {
	folder, err := os.MkdirTemp(dir, "turns-")
	if err != nil {
		return err
	}
	inner, err := openSQLite(ctx, folder)
	if err != nil {
		return err
	}
	stats := new(observed.Stats)
	s := observed.New(inner, stats)
	defer s.Close()
	rt, stop, err := working(ctx, s, turn)
	if err != nil {
		return err
	}
	defer stop()
	of := series{}
	if err := of.clients(ctx, rt, 1, 10); err != nil {
		return err
	}
	before := stats.Snapshot()
	if err := of.clients(ctx, rt, 1, 100); err != nil {
		return err
	}
	writes, reads := 0.0, 0.0
	for _, op := range store.Ops() {
		n := float64(stats.Snapshot().Of(op).Calls-before.Of(op).Calls) / 100
		if op.Writes() {
			writes += n
		} else {
			reads += n
		}
	}
	fmt.Printf("calls a turn on sqlitestore: %.1f reads\n", reads)
	atMost("commits a turn of one step", writes, 4.5)
	return nil
}

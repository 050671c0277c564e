package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"slices"
	"strings"
	"syscall"
	"text/tabwriter"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/store"
)

var engineNames = flag.String("engines", "", "measure these engines only, as in pg,redis,nats,nats3,s3")

// An engine is a server, or some, that this program can start and stores can be in.
type engine struct {
	name, about string
	each        int // how many writes one writer makes in a row: more where they are fast
	start       func(ctx context.Context, dir string) (*service, error)
}

// A service is an engine that runs.
type service struct {
	where   string                                    // see newStore
	first   string                                    // where, with only the first server
	address string                                    // of the first server, in where
	answer  string                                    // see meter
	raw     func(ctx context.Context) (target, error) // bare writes by a client of the engine's own
	stop    func()
}

var allEngines = []engine{
	{"pg", "PostgreSQL with its default settings beside INSERT on 64 connections", 200, startPostgres},
	{"redis", "Redis with appendfsync always beside RPUSH on 64 connections", 200, startRedis},
	{"nats", "a NATS server with sync_interval always beside bare publishes", 100, startNATS},
	{"nats3", "three replicas on three such servers beside bare publishes", 50, startNATSCluster},
	{"s3", "versitygw beside conditional puts of 1 KiB", 50, startS3},
}

// An engineResult is what was measured of an engine.
type engineResult struct {
	rates
	trips     float64 // round trips of a step
	takeovers series
}

// engines measures appends and steps on each engine beside bare writes of its client,
// round trips, and takeovers.
func engines(ctx context.Context, dir string) error {
	chosen := strings.Split(*engineNames, ",")
	for _, name := range chosen {
		if name != "" && !slices.ContainsFunc(allEngines, func(e engine) bool { return e.name == name }) {
			return fmt.Errorf("there is no engine %q", name)
		}
	}
	fmt.Printf("\nEngines, entries and results of %d bytes, server and clients on one machine:\n", entrySize)
	w := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(w, "\traw/s, 1 writer\tappends/s\tsteps/s, 1 run\traw/s, 64 writers\tappends/s\tsteps/s, 64 runs\ttrips a step\ttakeover p50\tp99\t")
	var verdicts []func()
	var errs []error
	for _, e := range allEngines {
		if *engineNames != "" && !slices.Contains(chosen, e.name) {
			continue
		}
		r, err := e.measure(ctx, dir)
		if err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", e.name, err))
		}
		if r == nil || err != nil {
			continue
		}
		fmt.Fprintf(w, "%s\t%.0f\t%.0f\t%.0f\t%.0f\t%.0f\t%.0f\t%.2f\t%s\t%s\t\n", e.name, r.raw.one.rate(), r.appends.one.rate(), r.steps.one.rate(),
			r.raw.many.rate(), r.appends.many.rate(), r.steps.many.rate(), r.trips, short(r.takeovers.p(50)), short(r.takeovers.p(99)))
		verdicts = append(verdicts, func() {
			fmt.Printf("%s: %s\n", e.name, e.about)
			fmt.Printf("%s: appends/s ÷ raw, 1 writer: %.2f; steps/s ÷ raw, 1 run: %.2f\n", e.name, ratio(r.appends.one, r.raw.one), ratio(r.steps.one, r.raw.one))
			expect(e.name+": appends/s of 64 writers ÷ raw", ratio(r.appends.many, r.raw.many), 0.6)
			expect(e.name+": steps/s of 64 runs ÷ raw", ratio(r.steps.many, r.raw.many), 0.6)
			atMost(e.name+": round trips a step, with all polls", r.trips, 1.1)
		})
	}
	w.Flush()
	fmt.Println("takeover: from SIGKILL of a worker process to the next step of each of its runs in another process.")
	for _, print := range verdicts {
		print()
	}
	return errors.Join(errs...)
}

// measure starts an engine and measures it. It returns nil for one that cannot be
// started, and prints why.
func (e engine) measure(ctx context.Context, parent string) (r *engineResult, err error) {
	dir, err := os.MkdirTemp(parent, e.name+"-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	progress := func(what string, n, of int) {
		fmt.Fprintf(os.Stderr, "\r%-40s", fmt.Sprintf("%s: %s, round %d of %d", e.name, what, n+1, of))
	}
	defer fmt.Fprintf(os.Stderr, "\r%40s\r", "")
	s, err := e.start(ctx, dir)
	if err != nil {
		fmt.Printf("%s is not measured: %v\n", e.name, err)
		return nil, nil
	}
	defer s.stop()
	r = new(engineResult)
	rounds := min(*rounds, 3)
	for n := range rounds {
		progress("rates", n, rounds)
		raw, err := s.raw(ctx)
		if err != nil {
			return nil, err
		}
		if err := errors.Join(r.round(ctx, s.where, raw, e.each), raw.close()); err != nil {
			return nil, err
		}
	}
	if r.trips, err = s.countTrips(ctx, e.each); err != nil {
		return nil, err
	}
	for n := range 4 {
		progress("takeovers", n, 4)
		if err := takeover(ctx, s.where, syscall.SIGKILL, 0, &r.takeovers); err != nil {
			return nil, err
		}
	}
	return r, nil
}

// countTrips counts the round trips of a step through a meter before the server: the
// difference of two runs of different lengths, up to their last step, since a journal
// that is read afterwards takes as many as it is long on some engines.
func (s *service) countTrips(ctx context.Context, each int) (float64, error) {
	m, err := newMeter(s.address, s.answer)
	if err != nil {
		return 0, err
	}
	defer m.close()
	var trips [2]int64
	err = inRuntime(ctx, m.before(s.first), func(_ store.Store, rt *perdure.Runtime) error {
		for i, n := range []int{each, 10 * each} {
			before := m.trips.Load()
			run, err := rt.Start(ctx, perdure.StartRequest{Flow: "steps", Input: n})
			if err != nil {
				return err
			}
			select {
			case <-ended:
			case <-time.After(time.Minute):
				return errors.New("a run does not end")
			}
			trips[i] = m.trips.Load() - before
			if err := succeed(ctx, rt, run.Thread, run.ID); err != nil {
				return err
			}
		}
		return nil
	})
	return float64(trips[1]-trips[0]) / float64(9*each), err
}

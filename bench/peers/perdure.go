package main

import (
	"context"
	"fmt"
	"os"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/pgtest"
	"github.com/perdure/perdure/store"
	_ "github.com/perdure/perdure/store/pgstore"     // by URL
	_ "github.com/perdure/perdure/store/sqlitestore" // by URL
)

const perdureNotes = "sqlitestore with its defaults, worker and clients in one process; a step is perdure.Step, a run is Start to WaitEnd, and the wait is Receive. Bytes include zeros by which the store grows a new WAL ahead of its commits, once up to its full length."

const perdurePostgresNotes = "pgstore with its defaults, worker and clients in one process; otherwise as on SQLite."

// perdurePeer says of itself what makes its writes durable.
type perdurePeer struct {
	rt      *perdure.Runtime
	durable func(context.Context) (string, error)
}

func openPerdure(ctx context.Context, dir string) (peer, error) {
	return newPerdure(ctx, "sqlite:"+dir+"/perdure.db", func(context.Context) (string, error) {
		return "journal_mode=wal synchronous=2, which sqlitestore reads back when it opens a file", nil
	})
}

func openPerdurePostgres(ctx context.Context, dir string) (peer, error) {
	return newPerdure(ctx, pgtest.Schema(os.Getenv(pgtest.Env), dir), serverSettings)
}

func newPerdure(ctx context.Context, url string, durable func(context.Context) (string, error)) (peer, error) {
	s, err := store.Open(ctx, url)
	if err != nil {
		return nil, err
	}
	rt, err := perdure.New(ctx, s, perdure.Options{Version: "bench"}, perdure.NewFlow("steps", perdureSteps))
	if err != nil {
		return nil, err
	}
	go func() { fatal(rt.Work(ctx)) }()
	return perdurePeer{rt, durable}, nil
}

func perdureSteps(ctx context.Context, w work) (int, error) {
	for i := range w.Steps {
		if err := perdureStep(ctx, fmt.Sprint("step-", i)); err != nil {
			return 0, err
		}
	}
	if !w.Wait {
		return w.Steps, nil
	}
	if _, err := perdure.Receive[bool](ctx, "wait", "go", 0); err != nil {
		return 0, err
	}
	return w.Steps + 1, perdureStep(ctx, "last")
}

func perdureStep(ctx context.Context, name string) error {
	_, err := perdure.Step(ctx, name, func(context.Context) (string, error) { tick(); return result, nil })
	return err
}

func (p perdurePeer) run(ctx context.Context, id string, steps int) error {
	run, err := p.rt.Start(ctx, perdure.StartRequest{Thread: id, Flow: "steps", Input: work{Steps: steps}})
	if err != nil {
		return err
	}
	return p.ended(ctx, id, run.ID)
}

func (p perdurePeer) ended(ctx context.Context, id, which string) error {
	run, err := p.rt.WaitEnd(ctx, id, which)
	if err == nil && run.Status != perdure.Succeeded {
		err = fmt.Errorf("the run on %s is %s: %s", id, run.Status, run.Error)
	}
	return err
}

func (p perdurePeer) suspend(ctx context.Context, id string, steps int) error {
	if _, err := p.rt.Start(ctx, perdure.StartRequest{Thread: id, Flow: "steps", Input: work{Steps: steps, Wait: true}}); err != nil {
		return err
	}
	_, err := p.rt.Wait(ctx, id, "")
	return err
}

func (p perdurePeer) wake(ctx context.Context, id string) error {
	if err := p.rt.Signal(ctx, id, "go", true, perdure.SignalOptions{}); err != nil {
		return err
	}
	return p.ended(ctx, id, "")
}

func (p perdurePeer) setting(ctx context.Context) (string, error) { return p.durable(ctx) }

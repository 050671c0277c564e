package main

import (
	"context"
	"log/slog"
	"net/url"
	"os"
	"time"

	"github.com/dbos-inc/dbos-transact-golang/dbos"
	_ "github.com/dbos-inc/dbos-transact-golang/dbos/driver/sqlite"

	"github.com/perdure/perdure/internal/pgtest"
)

const dbosNotes = "DBOS opens SQLite with synchronous=NORMAL by default, which does not sync in each commit; here it is given a handle with FULL, and otherwise what its own pool has (WAL, 8 connections, immediate transactions, a busy time-out of 5 s). A step is RunAsStep, a run is RunWorkflow to GetResult, and the wait is Recv. A new process recovers runs in Launch."

const dbosPostgresNotes = "DBOS with its defaults on PostgreSQL, that is, a pool of 20 connections and a schema of its own; otherwise as on SQLite."

type dbosPeer struct {
	ctx     dbos.Context
	durable func(context.Context) (string, error)
	waiting chan bool
}

func openDBOS(ctx context.Context, dir string) (peer, error) {
	db, err := openSQLite(dir+"/dbos.db", 8)
	if err != nil {
		return nil, err
	}
	return newDBOS(ctx, dbos.Config{SQLiteSystemDB: db}, func(ctx context.Context) (string, error) { return pragmas(ctx, db) })
}

func openDBOSPostgres(ctx context.Context, dir string) (peer, error) {
	base := os.Getenv(pgtest.Env)
	u, err := url.Parse(pgtest.Schema(base, dir))
	if err != nil {
		return nil, err
	}
	return newDBOS(ctx, dbos.Config{DatabaseURL: base, DatabaseSchema: u.Query().Get("schema")}, serverSettings)
}

func newDBOS(ctx context.Context, config dbos.Config, durable func(context.Context) (string, error)) (peer, error) {
	config.AppName, config.Logger = "bench", slog.New(slog.DiscardHandler)
	dctx, err := dbos.NewContext(ctx, config)
	if err != nil {
		return nil, err
	}
	p := &dbosPeer{dctx, durable, make(chan bool, 1)}
	dbos.RegisterWorkflow(dctx, p.steps, dbos.WithWorkflowName("steps"))
	return p, dbos.Launch(dctx)
}

func (p *dbosPeer) steps(ctx dbos.Context, w work) (int, error) {
	for range w.Steps {
		if err := dbosStep(ctx); err != nil {
			return 0, err
		}
	}
	if !w.Wait {
		return w.Steps, nil
	}
	p.waiting <- true
	if _, err := dbos.Recv[bool](ctx, "go", time.Hour); err != nil {
		return 0, err
	}
	return w.Steps + 1, dbosStep(ctx)
}

func dbosStep(ctx dbos.Context) error {
	_, err := dbos.RunAsStep(ctx, func(context.Context) (string, error) { tick(); return result, nil }, dbos.WithStepName("step"))
	return err
}

func (p *dbosPeer) run(_ context.Context, id string, steps int) error {
	h, err := dbos.RunWorkflow(p.ctx, p.steps, work{Steps: steps}, dbos.WithWorkflowID(id))
	if err != nil {
		return err
	}
	_, err = h.GetResult()
	return err
}

func (p *dbosPeer) suspend(_ context.Context, id string, steps int) error {
	_, err := dbos.RunWorkflow(p.ctx, p.steps, work{Steps: steps, Wait: true}, dbos.WithWorkflowID(id))
	if err != nil {
		return err
	}
	<-p.waiting
	return nil
}

func (p *dbosPeer) wake(_ context.Context, id string) error {
	if err := dbos.Send(p.ctx, id, true, "go"); err != nil {
		return err
	}
	h, err := dbos.RetrieveWorkflow[int](p.ctx, id)
	if err != nil {
		return err
	}
	_, err = h.GetResult()
	return err
}

func (p *dbosPeer) setting(ctx context.Context) (string, error) { return p.durable(ctx) }

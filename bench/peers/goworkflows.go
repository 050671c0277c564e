package main

import (
	"context"
	"database/sql"
	"log/slog"
	"os"
	"path/filepath"
	"time"

	"github.com/cschleiden/go-workflows/backend"
	"github.com/cschleiden/go-workflows/backend/monoprocess"
	"github.com/cschleiden/go-workflows/backend/sqlite"
	"github.com/cschleiden/go-workflows/client"
	"github.com/cschleiden/go-workflows/worker"
	"github.com/cschleiden/go-workflows/workflow"
)

const goWorkflowsNotes = "the SQLite backend with one connection, as its own constructor sets it, inside the monoprocess backend, which wakes workers of the same process; the worker has its default options. A step is an activity, a run is CreateWorkflowInstance to GetWorkflowResult, which polls with growing pauses, and the wait is a signal channel. The worker keeps its name when it is restarted, so that no sticky time-out is waited for."

type goWorkflowsPeer struct {
	dir     string
	client  *client.Client
	db      *sql.DB
	waiting chan bool
}

func openGoWorkflows(ctx context.Context, dir string) (peer, error) {
	db, err := openSQLite(dir+"/go-workflows.db", 1)
	if err != nil {
		return nil, err
	}
	b := monoprocess.NewMonoprocessBackend(sqlite.NewSqliteBackendWithDB(db, sqlite.WithApplyMigrations(true),
		sqlite.WithBackendOptions(backend.WithLogger(slog.New(slog.DiscardHandler)), backend.WithWorkerName("bench"))))
	w := worker.New(b, nil)
	p := &goWorkflowsPeer{dir, client.New(b), db, make(chan bool, 10)}
	if err := w.RegisterWorkflow(p.steps); err != nil {
		return nil, err
	}
	if err := w.RegisterActivity(goWorkflowsStep); err != nil {
		return nil, err
	}
	return p, w.Start(ctx)
}

func (p *goWorkflowsPeer) steps(ctx workflow.Context, w work) (int, error) {
	for range w.Steps {
		if _, err := workflow.ExecuteActivity[string](ctx, workflow.DefaultActivityOptions, goWorkflowsStep).Get(ctx); err != nil {
			return 0, err
		}
	}
	if !w.Wait {
		return w.Steps, nil
	}
	if !workflow.Replaying(ctx) {
		p.waiting <- true
	}
	workflow.NewSignalChannel[bool](ctx, "go").Receive(ctx)
	_, err := workflow.ExecuteActivity[string](ctx, workflow.DefaultActivityOptions, goWorkflowsStep).Get(ctx)
	return w.Steps + 1, err
}

func goWorkflowsStep(context.Context) (string, error) { tick(); return result, nil }

func (p *goWorkflowsPeer) run(ctx context.Context, id string, steps int) error {
	of, err := p.client.CreateWorkflowInstance(ctx, client.WorkflowInstanceOptions{InstanceID: id}, p.steps, work{Steps: steps})
	if err != nil {
		return err
	}
	_, err = client.GetWorkflowResult[int](ctx, p.client, of, time.Minute)
	return err
}

func (p *goWorkflowsPeer) suspend(ctx context.Context, id string, steps int) error {
	of, err := p.client.CreateWorkflowInstance(ctx, client.WorkflowInstanceOptions{InstanceID: id}, p.steps, work{Steps: steps, Wait: true})
	if err != nil {
		return err
	}
	<-p.waiting
	time.Sleep(time.Second) // the workflow's task is committed after this
	return os.WriteFile(filepath.Join(p.dir, id), []byte(of.ExecutionID), 0o600)
}

func (p *goWorkflowsPeer) wake(ctx context.Context, id string) error {
	execution, err := os.ReadFile(filepath.Join(p.dir, id))
	if err != nil {
		return err
	}
	if err := p.client.SignalWorkflow(ctx, id, "go", true); err != nil {
		return err
	}
	_, err = client.GetWorkflowResult[int](ctx, p.client, &workflow.Instance{InstanceID: id, ExecutionID: string(execution)}, time.Minute)
	return err
}

func (p *goWorkflowsPeer) setting(ctx context.Context) (string, error) { return pragmas(ctx, p.db) }

package main

import (
	"context"
	"database/sql"
	"iter"
	"strconv"

	"google.golang.org/adk/v2/agent"
	"google.golang.org/adk/v2/runner"
	"google.golang.org/adk/v2/session"
	"google.golang.org/adk/v2/session/database"
	"google.golang.org/genai"
	"gorm.io/driver/sqlite"
	"gorm.io/gorm"
	"gorm.io/gorm/logger"
)

const adkNotes = "the database session service on a SQLite handle with one connection: with 8, 50 runs at a time fail with SQLITE_BUSY. A step is an event that a custom agent yields and the runner appends, a run is a new session and one Runner.Run. It records a conversation and does not drive it: nothing continues a run by itself, so resume is the next message to a session with 800 events, answered by one event."

type adkPeer struct {
	runner *runner.Runner
	db     *sql.DB
}

func openADK(_ context.Context, dir string) (peer, error) {
	db, err := openSQLite(dir+"/adk.db", 1)
	if err != nil {
		return nil, err
	}
	sessions, err := database.NewSessionService(sqlite.Dialector{Conn: db}, &gorm.Config{Logger: logger.Discard})
	if err != nil {
		return nil, err
	}
	if err := database.AutoMigrate(sessions); err != nil {
		return nil, err
	}
	a, err := agent.New(agent.Config{Name: "steps", Run: adkSteps})
	if err != nil {
		return nil, err
	}
	r, err := runner.New(runner.Config{AppName: "bench", Agent: a, SessionService: sessions, AutoCreateSession: true})
	return &adkPeer{r, db}, err
}

// adkSteps yields as many events as the user's message says.
func adkSteps(ctx agent.InvocationContext) iter.Seq2[*session.Event, error] {
	return func(yield func(*session.Event, error) bool) {
		n, err := strconv.Atoi(ctx.UserContent().Parts[0].Text)
		if err != nil {
			yield(nil, err)
			return
		}
		for range n {
			tick()
			e := session.NewEvent(ctx, ctx.InvocationID())
			e.Author = "steps"
			e.Content = genai.NewContentFromText(result, genai.RoleModel)
			if !yield(e, nil) {
				return
			}
		}
	}
}

func (p *adkPeer) run(ctx context.Context, id string, steps int) error {
	for _, err := range p.runner.Run(ctx, "user", id, genai.NewContentFromText(strconv.Itoa(steps), genai.RoleUser), agent.RunConfig{}) {
		if err != nil {
			return err
		}
	}
	return nil
}

func (p *adkPeer) suspend(ctx context.Context, id string, steps int) error {
	return p.run(ctx, id, steps)
}

func (p *adkPeer) wake(ctx context.Context, id string) error { return p.run(ctx, id, 1) }

func (p *adkPeer) setting(ctx context.Context) (string, error) { return pragmas(ctx, p.db) }

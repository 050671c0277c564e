package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math/rand"
	"os"
	"runtime/debug"

	"github.com/jackc/pgx/v5"
	"github.com/perdure/perdure/internal/pgtest"
	_ "modernc.org/sqlite" // the driver of all peers that use database/sql
)

// peer is one of the programs compared, opened in a folder. A step returns result and
// calls tick; it counts as durable when its result would survive a loss of power.
type peer interface {
	// run does so many steps one after the other as one run, and returns when its result
	// is there. Runs are called at the same time.
	run(ctx context.Context, id string, steps int) error

	// suspend does so many steps as a run that waits then, and returns when it waits.
	suspend(ctx context.Context, id string, steps int) error

	// wake lets a run go on that waits, usually one of an earlier process. The run does
	// one more step; wake returns when the run has ended.
	wake(ctx context.Context, id string) error

	// setting is what makes the peer's writes durable, asked of its own connection where
	// it has one.
	setting(ctx context.Context) (string, error)
}

// entrant is one line of the table.
type entrant struct {
	name    string
	module  string // of Go, for the version
	open    func(ctx context.Context, dir string) (peer, error)
	command func() (args []string, version string, err error) // another program that takes the job as its last argument, instead of open
	notes   string
}

var entrants = []entrant{
	{name: "perdure", open: openPerdure, notes: perdureNotes},
	{name: "dbos", module: "github.com/dbos-inc/dbos-transact-golang", open: openDBOS, notes: dbosNotes},
	{name: "go-workflows", module: "github.com/cschleiden/go-workflows", open: openGoWorkflows, notes: goWorkflowsNotes},
	{name: "adk-go", module: "google.golang.org/adk/v2", open: openADK, notes: adkNotes},
	{name: "eino", module: "github.com/cloudwego/eino", open: openEino, notes: einoNotes},
	{name: "langgraph-graph", command: langGraph("graph"), notes: langGraphGraphNotes},
	{name: "langgraph-tasks", command: langGraph("tasks"), notes: langGraphTasksNotes},
}

// postgresEntrants are the lines of the table with -postgres.
var postgresEntrants = []entrant{
	{name: "perdure-postgres", open: openPerdurePostgres, notes: perdurePostgresNotes},
	{name: "dbos-postgres", module: "github.com/dbos-inc/dbos-transact-golang", open: openDBOSPostgres, notes: dbosPostgresNotes},
}

// moduleVersion is the version of a module in this program.
func moduleVersion(path string) string {
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, dep := range info.Deps {
			if dep.Path == path {
				return dep.Version
			}
		}
	}
	return ""
}

// result is what each step returns: 1 KiB of text that compresses badly.
var result = func() string {
	const letters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_"
	source := rand.New(rand.NewSource(1))
	text := make([]byte, 1<<10)
	for i := range text {
		text[i] = letters[source.Intn(len(letters))]
	}
	return string(text)
}()

// work is the input of a run.
type work struct {
	Steps int
	Wait  bool // and one more step after it
}

// openSQLite opens a database for a peer that is given one, with so many connections,
// in WAL mode and with a sync in every commit.
func openSQLite(file string, connections int) (*sql.DB, error) {
	db, err := sql.Open("sqlite", "file:"+file+"?_txlock=immediate&_pragma=busy_timeout(5000)&_pragma=foreign_keys(ON)"+
		"&_pragma=journal_mode(WAL)&_pragma=synchronous(FULL)")
	if err != nil {
		return nil, err
	}
	db.SetMaxOpenConns(connections)
	db.SetMaxIdleConns(connections)
	return db, nil
}

// serverSettings is the setting of a peer on PostgreSQL, where both use those of the
// server.
func serverSettings(ctx context.Context) (text string, err error) {
	c, err := pgx.Connect(ctx, os.Getenv(pgtest.Env))
	if err != nil {
		return "", err
	}
	err = c.QueryRow(ctx, "SELECT format('fsync=%s synchronous_commit=%s full_page_writes=%s', current_setting('fsync'), current_setting('synchronous_commit'), current_setting('full_page_writes'))").Scan(&text)
	return text, errors.Join(err, c.Close(ctx))
}

// pragmas is the setting of a peer on SQLite.
func pragmas(ctx context.Context, db *sql.DB) (string, error) {
	var mode, synchronous string
	err := errors.Join(
		db.QueryRowContext(ctx, "PRAGMA journal_mode").Scan(&mode),
		db.QueryRowContext(ctx, "PRAGMA synchronous").Scan(&synchronous))
	return fmt.Sprintf("journal_mode=%s synchronous=%s", mode, synchronous), err
}

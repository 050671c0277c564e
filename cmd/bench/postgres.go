package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/pgtest"
	"github.com/perdure/perdure/store"
	_ "github.com/perdure/perdure/store/pgstore" // by URL
)

var (
	sleepers  = flag.Int("sleepers", 20_000, "suspended threads on PostgreSQL")
	shortRuns = flag.Int("short-runs", 5000, "runs on PostgreSQL after which sizes are looked at")
)

// postgres measures pgstore, the kernel on it, and several processes, all on one server
// with its default settings of durability.
func postgres(ctx context.Context, dir string) error {
	url := os.Getenv(pgtest.Env)
	if url == "" {
		server, err := pgtest.Launch()
		if err != nil {
			fmt.Printf("\nPostgreSQL is not measured: %v\n", err)
			return nil
		}
		defer server.Stop()
		url = server.URL
	}
	var about string
	if err := onServer(ctx, url, func(c *pgx.Conn) error {
		return c.QueryRow(ctx, "SELECT format('%s, fsync %s, synchronous_commit %s, full_page_writes %s, shared_buffers %s', split_part(version(), ' on ', 1), current_setting('fsync'), current_setting('synchronous_commit'), current_setting('full_page_writes'), current_setting('shared_buffers'))").Scan(&about)
	}); err != nil {
		return err
	}
	fmt.Printf("\n%s:\n\n", about)
	for _, part := range []func(context.Context, string) error{pgAppends, stepRates, countStatements, pgTurns, processes, pgTokens, bloat,
		func(ctx context.Context, url string) error { return claims(ctx, url, *sleepers) }} {
		if err := part(ctx, url); err != nil {
			return err
		}
	}
	return nil
}

// onServer calls fn with a connection of its own.
func onServer(ctx context.Context, url string, fn func(c *pgx.Conn) error) error {
	config, err := pgx.ParseConfig(url)
	if err != nil {
		return err
	}
	delete(config.RuntimeParams, "schema") // it is for pgstore
	c, err := pgx.ConnectConfig(ctx, config)
	if err != nil {
		return err
	}
	return errors.Join(fn(c), c.Close(ctx))
}

// newSchema returns the URL of a store in a new schema, and what removes it.
func newSchema(base string) (url string, remove func(), err error) {
	schema := pgtest.Name()
	return pgtest.With(base, "schema", schema), func() {
		ctx := context.Background()
		if err := onServer(ctx, base, func(c *pgx.Conn) error {
			_, err := c.Exec(ctx, "DROP SCHEMA IF EXISTS "+schema+" CASCADE")
			return err
		}); err != nil {
			fmt.Fprintln(os.Stderr, "bench:", err)
		}
	}, nil
}

// schemaOf returns the schema of a store's URL.
func schemaOf(url string) string {
	_, schema, _ := strings.Cut(url, "schema=")
	schema, _, _ = strings.Cut(schema, "&")
	return schema
}

// A pgTarget inserts entries into a table like that of pgstore.
type pgTarget struct {
	pool   *pgxpool.Pool
	insert string
	table  string
}

func newPgTarget(ctx context.Context, url string, connections int) (*pgTarget, error) {
	pool, err := pgxpool.New(ctx, pgtest.With(url, "pool_max_conns", fmt.Sprint(connections)))
	if err != nil {
		return nil, err
	}
	t := &pgTarget{pool: pool, table: pgtest.Name()}
	t.insert = "INSERT INTO " + t.table + " VALUES ($1, $2, $3)"
	_, err = pool.Exec(ctx, "CREATE TABLE "+t.table+" (journal bigint NOT NULL, seq bigint NOT NULL, data bytea NOT NULL, PRIMARY KEY (journal, seq))")
	return t, err
}

func (t *pgTarget) append(ctx context.Context, w int, n uint64, data []byte) error {
	_, err := t.pool.Exec(ctx, t.insert, w, n, data)
	return err
}

func (t *pgTarget) close() error {
	_, err := t.pool.Exec(context.Background(), "DROP TABLE "+t.table)
	t.pool.Close()
	return err
}

// grouped inserts what some writers append together in one statement.
func (t *pgTarget) grouped(ctx context.Context, b *groupBatch) error {
	_, err := t.pool.Exec(ctx, "INSERT INTO "+t.table+" SELECT * FROM unnest($1::bigint[], $2::bigint[], $3::bytea[])", b.writers, b.numbers, b.entries)
	return err
}

// whole is the limit of grouping. It is the target of a loop of statements that insert 64 entries each, without
// writers that wait for them: only the writer 1 comes.
type whole struct{ *pgTarget }

func (t whole) append(ctx context.Context, w int, n uint64, data []byte) error {
	if w != 1 {
		return nil
	}
	b := &groupBatch{}
	for i := range int64(64) {
		b.writers, b.numbers, b.entries = append(b.writers, 1+i), append(b.numbers, int64(n)), append(b.entries, data)
	}
	return t.grouped(ctx, b)
}

// pgAppends measures appends to pgstore beside bare inserts.
func pgAppends(ctx context.Context, url string) error {
	names := []string{"bare INSERT", "grouped by unnest", "loop of 64 by unnest", "pgstore"}
	opens := []func() (target, func(), error){
		func() (target, func(), error) { t, err := newPgTarget(ctx, url, 64); return t, func() {}, err },
		func() (target, func(), error) {
			t, err := newPgTarget(ctx, url, 1)
			return newGroupLog(t.grouped, t.close), func() {}, err
		},
		func() (target, func(), error) { t, err := newPgTarget(ctx, url, 1); return whole{t}, func() {}, err },
		func() (target, func(), error) {
			own, remove, err := newSchema(url)
			if err != nil {
				return nil, nil, err
			}
			s, err := store.Open(ctx, own)
			return storeTarget{s}, remove, err
		},
	}
	results := make([]result, len(opens))
	data := entry()
	measure := func() error {
		targets := make([]target, len(opens))
		for i, open := range opens {
			t, remove, err := open()
			if err != nil {
				return err
			}
			defer func() { t.close(); remove() }()
			targets[i] = t
		}
		// They take turns in short parts, so that what else the machine does meets all.
		const parts, warm = 4, 50
		for part := range parts + 1 {
			for i, t := range targets {
				r, n1, n64, from1, from64 := &results[i], *one/parts, *many/parts, uint64(warm+(part-1)*(*one/parts)), uint64(warm+(part-1)*(*many/parts/64))
				if part == 0 {
					r, n1, n64, from1, from64 = &result{}, warm, 64*warm, 0, 0
				}
				if names[i] != "loop of 64 by unnest" {
					if err := r.one.writers(ctx, t, 1, n1, from1, data); err != nil {
						return err
					}
				}
				if err := r.many.writers(ctx, t, 64, n64, from64, data); err != nil {
					return err
				}
			}
		}
		return nil
	}
	for round := range *rounds {
		fmt.Fprintf(os.Stderr, "\rappends to PostgreSQL, round %d of %d", round+1, *rounds)
		if err := measure(); err != nil {
			return err
		}
	}
	fmt.Fprintf(os.Stderr, "\r%60s\r", "")
	w := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(w, "appends of 1 KiB\t1 writer/s\tp50\tp99\t64 writers/s\tp50\tp99\t")
	for i, r := range results {
		cols := "-\t-\t-"
		if len(r.one.rates) > 0 {
			cols = fmt.Sprintf("%.0f\t%s\t%s", r.one.rate(), short(r.one.p(50)), short(r.one.p(99)))
		}
		fmt.Fprintf(w, "%s\t%s\t%.0f\t%s\t%s\t\n", names[i], cols, r.many.rate(), short(r.many.p(50)), short(r.many.p(99)))
	}
	w.Flush()
	bare, grouped, own := results[0], results[1], results[3]
	expect("pgstore ÷ bare INSERT, 1 writer", ratio(own.one, bare.one), 0.9)
	expect("pgstore ÷ bare INSERT on 64 connections, 64 writers", ratio(own.many, bare.many), 0.9)
	expect("pgstore ÷ grouped by unnest, 64 writers", ratio(own.many, grouped.many), 0.8)
	expect("pgstore ÷ loop of 64 by unnest, which has no writers that wait, 64 writers", ratio(own.many, results[2].many), 0.8)
	return nil
}

// countStatements counts the transactions and the syncs of a step: the difference of
// two runs of different lengths on new stores. Every statement of pgstore is a
// transaction.
func countStatements(ctx context.Context, url string) error {
	const least, most = 100, 1100
	var commits, syncs [2]float64
	for i, n := range []int{least, most} {
		commitsBefore, syncsBefore, err := counters(ctx, url)
		if err != nil {
			return err
		}
		if err := inRuntime(ctx, url, func(_ store.Store, rt *perdure.Runtime) error {
			_, err := flows(ctx, rt, 1, n, "counted")
			return err
		}); err != nil {
			return err
		}
		if commits[i], syncs[i], err = counters(ctx, url); err != nil {
			return err
		}
		commits[i], syncs[i] = commits[i]-commitsBefore, syncs[i]-syncsBefore
	}
	atMost("transactions a step, all reads, polls and notifications included", (commits[1]-commits[0])/(most-least), 1.1)
	atMost("syncs of the server's WAL a step", (syncs[1]-syncs[0])/(most-least), 1.1)
	return nil
}

// counters returns the transactions and syncs of the server when no store is open:
// its processes tell what they did when they end.
func counters(ctx context.Context, url string) (commits, syncs float64, err error) {
	err = onServer(ctx, url, func(c *pgx.Conn) error {
		if err := eventually(func() (bool, error) {
			var open int
			err := c.QueryRow(ctx, "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'perdure'").Scan(&open)
			return open == 0, err
		}); err != nil {
			return err
		}
		return c.QueryRow(ctx, "SELECT (SELECT xact_commit FROM pg_stat_database WHERE datname = current_database()), (SELECT wal_sync FROM pg_stat_wal)").Scan(&commits, &syncs)
	})
	return commits, syncs, err
}

func pgTurns(ctx context.Context, url string) error {
	fmt.Printf("\nTurns on pgstore: a run of one step, from Start to WaitEnd, worker and clients in one process:\n")
	own, remove, err := newSchema(url)
	if err != nil {
		return err
	}
	defer remove()
	return turnTable(ctx, "", []turnStore{{"pgstore", func(ctx context.Context, _ string) (store.Store, error) { return store.Open(ctx, own) }}})
}

// pgTokens measures agents whose model streams to readers on another node.
func pgTokens(ctx context.Context, url string) error {
	model := &fakeModel{}
	if err := model.listen(); err != nil {
		return err
	}
	defer model.close()
	fmt.Printf("\nAgents on a worker process that stream %d tokens a turn at %d tokens/s to readers of an API process:\n", turnTokens, time.Second/tokenPace)
	for _, agents := range []int{1, 50} {
		l, err := model.measure(ctx, url, "api", agents)
		if err != nil {
			return err
		}
		fmt.Printf("%d agents: model to reader p50 %s, p99 %s; %d tokens lost, %d doubled\n", agents, short(l.delays.p(50)), short(l.delays.p(99)), l.lost, l.doubled)
		atMost(fmt.Sprintf("%d agents: token to a reader on another node, p99 in ms", agents), float64(l.delays.p(99))/1e6, 100)
	}
	return nil
}

// bloat lets many short runs end, and compares the sizes of tables and indexes with
// those that they have when they are written anew.
func bloat(ctx context.Context, url string) error {
	return inStore(ctx, url, func(s store.Store, own string) error {
		rt, stop, err := working(ctx, s, turn)
		if err != nil {
			return err
		}
		began := time.Now()
		var all series
		err = all.clients(ctx, rt, 64, *shortRuns/64*64)
		stop()
		if err != nil {
			return err
		}
		fmt.Printf("\n%d short runs by 64 clients in %.0f s, then sizes on disk beside those after VACUUM FULL:\n", *shortRuns, time.Since(began).Seconds())
		return onServer(ctx, url, func(c *pgx.Conn) error { return printSizes(ctx, c, schemaOf(own)) })
	})
}

// printSizes prints the sizes of a schema's tables and indexes before and after they
// are written anew.
func printSizes(ctx context.Context, c *pgx.Conn, schema string) error {
	type size struct {
		Name string
		Size int64
		Dead int64
	}
	sizes := func() ([]size, error) {
		rows, err := c.Query(ctx, "SELECT c.relname, pg_relation_size(c.oid) + coalesce(pg_relation_size(nullif(c.reltoastrelid, 0)), 0), coalesce(pg_stat_get_dead_tuples(c.oid), 0) FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace WHERE n.nspname = $1 AND c.relkind IN ('r', 'i') AND c.relname <> 'format' ORDER BY 1", schema)
		if err != nil {
			return nil, err
		}
		return pgx.CollectRows(rows, pgx.RowToStructByPos[size])
	}
	before, err := sizes()
	if err != nil {
		return err
	}
	for _, table := range []string{"journals", "entries", "cells"} {
		if _, err := c.Exec(ctx, "VACUUM FULL "+schema+"."+table); err != nil {
			return err
		}
	}
	after, err := sizes()
	if err != nil {
		return err
	}
	var sum, least int64
	for i, b := range before {
		fmt.Printf("  %-16s %8d KiB, %8d KiB after, ratio %.2f, %d dead rows\n", b.Name, b.Size>>10, after[i].Size>>10, float64(b.Size)/float64(max(1, after[i].Size)), b.Dead)
		sum, least = sum+b.Size, least+after[i].Size
	}
	atMost("sizes of tables and indexes ÷ written anew", float64(sum)/float64(least), 2)
	return nil
}

// copyRest writes what suspended threads leave in a store by COPY.
func copyRest(ctx context.Context, url string, suspended int, later int64) error {
	schema := schemaOf(url)
	return onServer(ctx, url, func(c *pgx.Conn) error {
		var cells [][2][]byte
		fill := func(table string, columns []string, next func() ([]any, error)) error {
			_, err := c.CopyFrom(ctx, pgx.Identifier{schema, table}, columns, pgx.CopyFromFunc(next))
			return err
		}
		i := 0
		if err := fill("journals", []string{"last", "name"}, func() ([]any, error) {
			if i++; i > suspended {
				return nil, nil
			}
			journal, _ := sleeper(i, later)
			return []any{int64(4), []byte(journal)}, nil
		}); err != nil {
			return err
		}
		if _, err := c.Exec(ctx, "INSERT INTO "+schema+".entries SELECT id, seq, $1 FROM "+schema+".journals, generate_series(1, 4) seq", sleeperLine); err != nil {
			return err
		}
		i = 0
		if err := fill("cells", []string{"key", "version", "value"}, func() ([]any, error) {
			for len(cells) == 0 {
				if i++; i > suspended {
					return nil, nil
				}
				_, keys := sleeper(i, later)
				for _, key := range keys {
					cells = append(cells, [2][]byte{[]byte(key), sleeperValue})
				}
			}
			row := cells[0]
			cells = cells[1:]
			return []any{row[0], "v", row[1]}, nil
		}); err != nil {
			return err
		}
		_, err := c.Exec(ctx, "ANALYZE")
		return err
	})
}

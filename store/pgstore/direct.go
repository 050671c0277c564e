package pgstore

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/perdure/perdure/store"
)

// checkDirect returns an error if the direct URL cannot be used: nothing else would tell.
// A server that does not answer there may do so later.
func (s *Store) checkDirect(ctx context.Context, pooler, direct *pgx.ConnConfig) error {
	for range 3 { // a server that is restarted between two questions is another one
		through, err := s.whichDatabase(ctx, pooler)
		if err != nil {
			return s.failed("read from", err)
		}
		at, err := s.whichDatabase(ctx, direct)
		if err != nil {
			if err = s.failed("connect to", err); errors.Is(err, store.ErrUnavailable) {
				return nil
			}
			return fmt.Errorf("the direct URL: %w", err)
		}
		if at == through {
			return nil
		}
	}
	return fmt.Errorf("%w: pgstore: the direct URL leads to another database or server than the pooler; it has to name the server behind the pooler, and the same database", store.ErrInvalid)
}

// whichDatabase returns a text that no other database has, nor that of another server.
func (s *Store) whichDatabase(ctx context.Context, config *pgx.ConnConfig) (id string, err error) {
	config = config.Copy()
	config.DefaultQueryExecMode = pgx.QueryExecModeExec
	ctx, cancel := s.call(ctx)
	defer cancel()
	c, err := pgx.ConnectConfig(ctx, config)
	if err != nil {
		return "", err
	}
	defer c.Close(context.WithoutCancel(ctx))
	err = c.QueryRow(ctx, "SELECT oid::text || ' ' || extract(epoch FROM pg_postmaster_start_time())::text FROM pg_database WHERE datname = current_database()").Scan(&id)
	return id, err
}

// Warnings implements store.Warner: it says that this process is not told of what others
// write, and gets no live text of runs that execute elsewhere.
func (s *Store) Warnings(context.Context) ([]store.Warning, error) {
	why := s.news.deaf()
	if why == "" {
		return nil, nil
	}
	return []store.Warning{{Kind: store.WarnNews,
		Detail: why + ": this process looks for what others write a few times a second, and gets no live text of runs that execute elsewhere",
		Fix:    "behind a pooler, add the address of the server itself to the URL, as ?direct=postgres://...; see the package comment of store/pgstore"}}, nil
}

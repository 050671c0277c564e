package pgtx_test

import (
	"context"

	"github.com/jackc/pgx/v5"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/store/pgstore/pgtx"
)

// A charge is a row in the same database as the journal: both are there, or
// neither. The flow needs a server to run, so the example has no output.
func Example() {
	_ = perdure.NewFlow("pay", func(ctx context.Context, cents int) (int, error) {
		return pgtx.Step(ctx, "charge", func(ctx context.Context, tx pgx.Tx) (total int, err error) {
			if _, err := tx.Exec(ctx, "INSERT INTO charges (key, cents) VALUES ($1, $2)", perdure.Key(ctx), cents); err != nil {
				return 0, err
			}
			err = tx.QueryRow(ctx, "SELECT sum(cents) FROM charges").Scan(&total)
			return total, err
		})
	})
}

// An order and the run that ships it are there, or neither. The function needs a
// server to run, so the example has no output.
func ExampleStart() {
	_ = func(ctx context.Context, runtime *perdure.Runtime, db *pgx.Conn, order string) error {
		return pgx.BeginFunc(ctx, db, func(tx pgx.Tx) error {
			if _, err := tx.Exec(ctx, "INSERT INTO orders (id) VALUES ($1)", order); err != nil {
				return err
			}
			_, err := pgtx.Start(ctx, runtime, tx, perdure.StartRequest{Flow: "ship", Thread: "order-" + order, Input: order})
			return err
		})
	}
}

package sqltx_test

import (
	"context"
	"fmt"
	"log"
	"os"
	"path/filepath"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/store/sqlitestore"
	"github.com/perdure/perdure/store/sqlitestore/sqltx"
)

// A charge is a row in the same file as the journal: both are there, or neither.
func Example() {
	pay := perdure.NewFlow("pay", func(ctx context.Context, cents int) (int, error) {
		return sqltx.Step(ctx, "charge", func(ctx context.Context, tx *sqltx.Tx) (total int, err error) {
			if _, err := tx.Exec(ctx, "CREATE TABLE IF NOT EXISTS charges (key TEXT, cents INTEGER)"); err != nil {
				return 0, err
			}
			if _, err := tx.Exec(ctx, "INSERT INTO charges VALUES (?, ?)", perdure.Key(ctx), cents); err != nil {
				return 0, err
			}
			err = tx.QueryRow(ctx, "SELECT sum(cents) FROM charges").Scan(&total)
			return total, err
		})
	})

	dir, err := os.MkdirTemp("", "sqltx")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	s, err := sqlitestore.Open(ctx, filepath.Join(dir, "app.db"), sqlitestore.Options{})
	if err != nil {
		log.Fatal(err)
	}
	defer s.Close()
	rt, err := perdure.New(ctx, s, perdure.Options{Version: "1"}, pay)
	if err != nil {
		log.Fatal(err)
	}
	go rt.Work(ctx)
	for _, cents := range []int{500, 250} {
		run, err := rt.Start(ctx, perdure.StartRequest{Flow: "pay", Input: cents})
		if err == nil {
			run, err = rt.Wait(ctx, run.Thread, run.ID)
		}
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(run.Status, string(run.Output))
	}
	// Output:
	// succeeded 500
	// succeeded 750
}

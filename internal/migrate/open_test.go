package migrate_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/kit"
	"github.com/perdure/perdure/internal/migrate"
	"github.com/perdure/perdure/internal/pgtest"
	"github.com/perdure/perdure/store"
	"github.com/perdure/perdure/store/memstore"
	"github.com/perdure/perdure/store/pgstore"
	"github.com/perdure/perdure/store/pgstore/pgtx"
	"github.com/perdure/perdure/store/seal"
)

var echo = perdure.NewFlow("echo", func(_ context.Context, in string) (int, error) { return len(in), nil })

// heldBack is a store whose transactions append only when they may.
type heldBack struct {
	store.Store
	joined chan struct{} // gets an element when one is about to
	may    chan struct{}
}

func (h *heldBack) Unwrap() store.Store { return h.Store }

func (h *heldBack) Begin(ctx context.Context, native any) (store.Tx, error) {
	tx, err := store.Join(ctx, h.Store, native)
	return &heldTx{tx, h}, err
}

type heldTx struct {
	store.Tx
	h *heldBack
}

func (t *heldTx) Commit(ctx context.Context, b store.Batch) (uint64, error) {
	t.h.joined <- struct{}{}
	<-t.h.may
	return t.Tx.Commit(ctx, b)
}

// TestOpenTransactions migrates while programs have started runs in transactions
// that are still open. What they commit moves as well; a migration that cannot wait
// for them, or is interrupted while it does, says who they are and goes on when it
// is run again.
func TestOpenTransactions(t *testing.T) {
	ring, err := seal.ParseRing("k:" + strings.Repeat("A", 43) + "=")
	kit.NoErr(t, err)
	for _, name := range []string{"plain", "sealed", "prepared"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			base := ""
			if name == "prepared" {
				server := pgtest.Start(t)
				kit.NoErr(t, server.Ctl("restart", "-o", "-c max_prepared_transactions=2"))
				base = server.URL
			} else {
				base = pgtest.URL(t)
			}
			inner, err := pgstore.Open(t.Context(), pgtest.Schema(base, t.TempDir()), pgstore.Options{})
			kit.NoErr(t, err)
			from := store.Store(inner)
			if name == "sealed" {
				from, err = seal.New(t.Context(), inner, ring)
				kit.NoErr(t, err)
			}
			defer from.Close()
			to, opts := memstore.New(), migrate.Options{To: "there", Grace: 1}
			rt := kit.Runtime(t, from, perdure.Options{}, echo)
			held := &heldBack{from, make(chan struct{}), make(chan struct{})}
			late := kit.Runtime(t, held, perdure.Options{}, echo)
			begin := func() pgx.Tx {
				c, err := pgx.Connect(t.Context(), base)
				kit.NoErr(t, err)
				t.Cleanup(func() { c.Close(context.Background()) })
				tx, err := c.Begin(t.Context())
				kit.NoErr(t, err)
				return tx
			}
			start := func(rt *perdure.Runtime, tx pgx.Tx, thread string) error {
				_, err := pgtx.Start(t.Context(), rt, tx, perdure.StartRequest{Flow: "echo", Thread: thread, Input: strings.Repeat("x", 100_000)})
				return err
			}
			kept, undone, writing, idle := begin(), begin(), begin(), begin()
			kit.NoErr(t, start(rt, kept, "kept"))
			kit.NoErr(t, start(rt, undone, "undone"))
			_, err = idle.Exec(t.Context(), "SELECT pg_current_xact_id()") // nobody waits for this one
			kit.NoErr(t, err)
			wrote := make(chan error, 1)
			go func() { wrote <- start(late, writing, "writing") }()
			<-held.joined
			who := func(tx pgx.Tx) string { return fmt.Sprint("process ", tx.Conn().PgConn().PID()) }
			want := []string{who(kept), who(undone), who(writing)}
			if name == "prepared" {
				_, err := kept.Exec(t.Context(), "PREPARE TRANSACTION 'theirs'")
				kit.NoErr(t, err)
				want[0] = "prepared transaction theirs"
			}
			slices.Sort(want)

			opts.Patience = 1
			_, err = migrate.Run(t.Context(), from, to, opts)
			kit.WantErr(t, "without patience", err, store.ErrBusy)
			if !strings.Contains(fmt.Sprint(err), strings.Join(want, ", ")) {
				t.Fatalf("it does not name %q: %v", want, err)
			}
			opts.Patience = time.Hour
			cut, cutOff := context.WithCancel(t.Context())
			opts.Progress = func(p migrate.Progress) {
				if p.Stage == "waiting" {
					cutOff()
				}
			}
			_, err = migrate.Run(cut, from, to, opts)
			kit.WantErr(t, "cut off", err, context.Canceled)
			_, err = perdure.New(t.Context(), to, perdure.Options{}, echo)
			kit.WantErr(t, "the target", err, store.ErrUnavailable)

			waits := make(chan []string, 1)
			opts.Progress = func(p migrate.Progress) {
				if p.Stage == "waiting" {
					select {
					case waits <- p.Open:
					default:
					}
				}
			}
			done := make(chan error, 1)
			go func() {
				_, err := migrate.Run(t.Context(), from, to, opts)
				done <- err
			}()
			if got := <-waits; !slices.Equal(got, want) {
				t.Errorf("it waits for %q, want %q", got, want)
			}
			close(held.may)
			kit.NoErr(t, <-wrote)
			if name == "prepared" {
				_, err = undone.Exec(t.Context(), "ROLLBACK")
				kit.NoErr(t, err)
				_, err = undone.Conn().Exec(t.Context(), "COMMIT PREPARED 'theirs'")
				kit.NoErr(t, err)
			} else {
				kit.NoErr(t, kept.Commit(t.Context()))
				kit.NoErr(t, undone.Rollback(t.Context()))
			}
			kit.NoErr(t, writing.Commit(t.Context()))
			kit.NoErr(t, <-done)
			kit.WantErr(t, "a start in an older transaction", start(kit.Runtime(t, from, perdure.Options{}, echo), idle, "new"), perdure.ErrMoved)

			k := kit.New(t, to, perdure.Options{}, echo)
			k.WaitFor("kept", perdure.Succeeded)
			k.WaitFor("writing", perdure.Succeeded)
			for thread, want := range map[string]error{"undone": perdure.ErrNoThread, "new": perdure.ErrNoThread} {
				_, err := k.Get(t.Context(), thread)
				kit.WantErr(t, thread, err, want)
			}
			for _, thread := range []string{"kept", "writing"} {
				if info, err := rt.Get(t.Context(), thread); err != nil || info.Moved != "there" {
					t.Errorf("%s in the source: %+v, %v", thread, info, err)
				}
			}
		})
	}
}

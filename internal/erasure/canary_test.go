package erasure_test

import (
	"encoding/json"
	"net/url"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/kit"
	"github.com/perdure/perdure/internal/natstest"
	"github.com/perdure/perdure/internal/pgtest"
	"github.com/perdure/perdure/internal/redistest"
	"github.com/perdure/perdure/internal/shelf"
	"github.com/perdure/perdure/store"
	"github.com/perdure/perdure/store/filestore"
	"github.com/perdure/perdure/store/memstore"
	"github.com/perdure/perdure/store/natsstore"
	"github.com/perdure/perdure/store/pgstore"
	"github.com/perdure/perdure/store/redisstore"
	"github.com/perdure/perdure/store/sqlitestore"
)

// liveAsUser has a user fill every field there is, on threads of all kinds and beyond
// threads. It stops the worker.
func liveAsUser(t *testing.T, k *kit.Kit, c *kit.Canary, flow string) {
	t.Helper()
	ctx := t.Context()
	c.Live(t, k.Runtime, flow)
	user := c.In("user")
	rt := k.User(user)
	up, err := rt.Upload(ctx, strings.NewReader(kit.Large+c.In("upload")), perdure.UploadRequest{Name: "upload " + c.Plain(), MIME: "text/plain"})
	kit.NoErr(t, err)
	ended := func(id string) {
		t.Helper()
		run, err := rt.Start(ctx, perdure.StartRequest{Flow: flow, Thread: id, Title: c.In("title of one that ended"), Input: map[string]string{"fail": c.In("input of one that ended")}, Attach: []string{up.ID}})
		kit.NoErr(t, err)
		_, err = rt.WaitEnd(ctx, id, run.ID)
		kit.NoErr(t, err)
	}
	note := perdure.Note{By: c.In("who archived"), Reason: c.In("why archived")}
	for _, id := range []string{c.In("archived thread"), c.In("restored thread")} {
		ended(id)
		_, err := rt.Archive(ctx, id, note)
		kit.NoErr(t, err)
	}
	kit.NoErr(t, rt.Restore(ctx, c.In("restored thread"), perdure.RestoreOptions{}))
	ended(c.In("forked thread"))
	_, err = rt.Fork(ctx, perdure.ForkRequest{Thread: c.In("forked thread"), As: c.In("fork"), Title: c.In("title of a fork"), State: map[string]any{"fork": c.In("state of a fork")}, By: c.In("who forked"), Reason: c.In("why forked")})
	kit.NoErr(t, err)
	put := func(kind shelf.Kind, what string, ns ...string) {
		t.Helper()
		value, _ := json.Marshal(c.In(what))
		_, err := shelf.Of(k.Runtime, kind).Put(ctx, ns, c.In("key of "+what), value, shelf.PutOptions{})
		kit.NoErr(t, err)
	}
	put(shelf.Memory, "memory", "user", user)
	put(shelf.Memory, "deep memory", "user", user, c.In("namespace"))
	put(shelf.Rule, "rule", user, "tool")
	put(shelf.Credential, "credential", user)
	k.Stop()
	_, err = rt.PutSchedule(ctx, perdure.ScheduleRequest{ID: "s-" + c.Plain(), Flow: flow, Title: c.In("title of a schedule"), Input: map[string]string{"fail": c.In("input of a schedule")},
		Metadata: map[string]string{c.In("key of a schedule"): c.In("metadata of a schedule")}, Every: 24 * time.Hour, By: c.In("who made a schedule")})
	kit.NoErr(t, err)
	_, err = k.StartBulk(ctx, perdure.BulkRequest{Verb: perdure.BulkCancel, Filter: perdure.ListOptions{User: user, Metadata: map[string]string{"m": c.In("filter of a job")}}, By: c.In("who began a job"), Reason: c.In("why a job")})
	kit.NoErr(t, err)
}

// engine is a store that a user is erased from.
type engine struct {
	files, masked bool                                  // it is in a folder; files do not show what is in them
	rows          func(t *testing.T, dir string) []byte // of all tables of a database
	open          func(t *testing.T, dir string) (store.Store, error)
}

func engines() map[string]engine {
	all := map[string]engine{
		"memory": {open: func(*testing.T, string) (store.Store, error) { return memstore.New(), nil }},
		"sqlite": {files: true, masked: true, open: func(t *testing.T, dir string) (store.Store, error) {
			return sqlitestore.Open(t.Context(), filepath.Join(dir, "db"), sqlitestore.Options{})
		}},
		"file": {files: true, open: func(t *testing.T, dir string) (store.Store, error) {
			return filestore.Open(t.Context(), filepath.Join(dir, "store"), filestore.Options{NoSync: true})
		}},
		"postgres": {open: func(t *testing.T, dir string) (store.Store, error) {
			return pgstore.Open(t.Context(), pgtest.Schema(pgtest.URL(t), dir), pgstore.Options{})
		}, rows: rowsOf},
	}
	if !testing.Short() {
		all["redis"] = engine{open: func(t *testing.T, dir string) (store.Store, error) {
			return redisstore.Open(t.Context(), redistest.Prefix(redistest.URL(t), dir), redisstore.Options{})
		}}
		all["nats"] = engine{open: func(t *testing.T, dir string) (store.Store, error) {
			return natsstore.Open(t.Context(), natstest.Stream(natstest.URL(t), dir), natsstore.Options{})
		}}
	}
	return all
}

// rowsOf returns all rows of a store in PostgreSQL, as text.
func rowsOf(t *testing.T, dir string) (all []byte) {
	t.Helper()
	ctx := t.Context()
	at, err := url.Parse(pgtest.Schema(pgtest.URL(t), dir))
	kit.NoErr(t, err)
	schema := at.Query().Get("schema")
	db, err := pgx.Connect(ctx, pgtest.URL(t))
	kit.NoErr(t, err)
	defer db.Close(ctx)
	texts := func(query string, args ...any) []string {
		t.Helper()
		rows, err := db.Query(ctx, query, args...)
		kit.NoErr(t, err)
		found, err := pgx.CollectRows(rows, pgx.RowTo[string])
		kit.NoErr(t, err)
		return found
	}
	for _, table := range texts("select tablename::text from pg_tables where schemaname = $1", schema) {
		for _, row := range texts("select t::text from " + (pgx.Identifier{schema, table}).Sanitize() + " t") {
			all = append(all, row+"\n"...)
		}
	}
	return all
}

// Nothing that a user gave, in any field, is in a cell, a journal, a name, or a file of
// the store or the archive once they are erased. What the engines of other processes
// keep in their files is tested with their drivers, see docs/guarantees.md.
func TestNothingOfAnErasedUserIsAnywhere(t *testing.T) {
	for name, e := range engines() {
		t.Run(name, func(t *testing.T) {
			p, folder := newPlace(t)
			dir := t.TempDir()
			s, err := e.open(t, dir)
			kit.NoErr(t, err)
			t.Cleanup(func() { s.Close() })
			gone, stays := kit.NewCanary(), kit.NewCanary()
			o := perdure.Options{Archive: p, Validator: kit.Accepting{}}
			liveAsUser(t, kit.New(t, s, o, gone.Flow("gone")), gone, "gone")
			k := kit.New(t, s, o, stays.Flow("stays"))
			liveAsUser(t, k, stays, "stays")

			data, names := kit.Contents(t, s)
			if gone.FoundIn(names) {
				t.Error("names of cells or journals hold what a user gave")
			}
			text := strings.ReplaceAll(string(data), `\"`, `"`)
			for _, field := range gone.Fields() {
				if !strings.Contains(text, gone.In(field)) && !strings.HasSuffix(field, " archived") { // those went with their journal
					t.Errorf("%s was never written: its erasure shows nothing", field)
				}
			}
			if n := len(gone.Fields()); n < 80 {
				t.Errorf("only %d fields were given", n)
			}
			if e.rows != nil && !gone.FoundIn(e.rows(t, dir)) {
				t.Error("the rows do not show what the store holds")
			}
			if len(filesWith(t, folder, gone)) == 0 || e.files && !e.masked && len(filesWith(t, dir, gone)) == 0 {
				t.Error("the scan finds nothing before the erase")
			}

			_, err = k.EraseUser(t.Context(), gone.In("user"), perdure.EraseUserOptions{By: gone.In("who erased"), Reason: gone.In("why erased")})
			kit.NoErr(t, err)
			data, names = kit.Contents(t, s)
			if gone.FoundIn(data) || gone.FoundIn(names) || !stays.FoundIn(data) {
				t.Errorf("the store holds the erased user: %t, %t; the other: %t", gone.FoundIn(data), gone.FoundIn(names), stays.FoundIn(data))
			}
			if e.rows != nil && gone.FoundIn(e.rows(t, dir)) {
				t.Error("rows hold the erased user")
			}
			look := func(when string) {
				if found := filesWith(t, folder, gone); len(found) > 0 {
					t.Errorf("%s it is in %q", when, found)
				}
				if found := filesWith(t, dir, gone); e.files && len(found) > 0 {
					t.Errorf("%s it is in %q", when, found)
				}
			}
			look("when EraseUser has returned")
			if len(filesWith(t, folder, stays)) == 0 || e.files && !e.masked && len(filesWith(t, dir, stays)) == 0 {
				t.Error("the scan finds nothing of the user who stays")
			}
			kit.NoErr(t, s.Close())
			look("after Close")
		})
	}
}

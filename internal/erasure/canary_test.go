package erasure_test

import (
	"context"
	"encoding/json"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	natsclient "github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/kit"
	"github.com/perdure/perdure/internal/migrate"
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
	store.Store
	files  string        // the folder of its data, "" if there is none
	masked bool          // files do not show what is in them
	rows   func() []byte // of all tables of a database
	flush  func()        // brings what is written into the files
	clean  func()        // is what rids the files of what was deleted, if an erase does not
}

func engines() map[string]func(t *testing.T) engine {
	all := map[string]func(t *testing.T) engine{
		"memory": func(*testing.T) engine { return engine{Store: memstore.New()} },
		"sqlite": func(t *testing.T) engine {
			dir := t.TempDir()
			s, err := sqlitestore.Open(t.Context(), filepath.Join(dir, "db"), sqlitestore.Options{})
			kit.NoErr(t, err)
			return engine{Store: s, files: dir, masked: true}
		},
		"file": func(t *testing.T) engine {
			dir := t.TempDir()
			s, err := filestore.Open(t.Context(), filepath.Join(dir, "store"), filestore.Options{NoSync: true})
			kit.NoErr(t, err)
			return engine{Store: s, files: dir}
		},
		"postgres": postgres,
		"redis":    redis,
	}
	if !testing.Short() {
		all["nats"] = nats
	}
	return all
}

// postgres looks at all files of a server but the WAL, which keeps what was written until
// it is recycled.
func postgres(t *testing.T) engine {
	server := pgtest.Start(t)
	s, err := pgstore.Open(t.Context(), server.URL, pgstore.Options{})
	kit.NoErr(t, err)
	db, err := pgx.Connect(t.Context(), server.URL)
	kit.NoErr(t, err)
	t.Cleanup(func() { db.Close(context.Background()) })
	do := func(statements ...string) {
		for _, q := range statements {
			_, err := db.Exec(t.Context(), q)
			kit.NoErr(t, err)
		}
	}
	return engine{Store: s, files: filepath.Join(server.Dir, "base"), rows: func() []byte { return rowsOf(t, db) },
		flush: func() { do("CHECKPOINT") },
		clean: func() { do("VACUUM FULL perdure.cells", "VACUUM FULL perdure.entries", "CHECKPOINT") }}
}

// redis has the server rewrite its file, as a store that is closed does.
func redis(t *testing.T) engine {
	server := redistest.Start(t, append([]string{"--rdbcompression", "no"}, redistest.Always...)...)
	s, err := redisstore.Open(t.Context(), server.URL, redisstore.Options{})
	kit.NoErr(t, err)
	return engine{Store: s, files: server.Dir, flush: func() {}, clean: func() { kit.NoErr(t, s.Close()) }}
}

// nats overwrites a cell until the server begins a new file: when it syncs, it compacts
// the old one, of which less than half is in use.
func nats(t *testing.T) engine {
	server := natstest.Start(t, natstest.Config{Settings: `jetstream: {sync_interval: "1s"}`})
	s, err := natsstore.Open(t.Context(), server.URL(), natsstore.Options{})
	kit.NoErr(t, err)
	return engine{Store: s, files: server.Dir, flush: func() {}, clean: func() {
		version, value := store.Version(""), make([]byte, 256<<10)
		for range 40 {
			version, err = s.Put(t.Context(), "filler", value, version)
			kit.NoErr(t, err)
		}
	}}
}

// rowsOf returns all rows of a store in PostgreSQL, as text.
func rowsOf(t *testing.T, db *pgx.Conn) (all []byte) {
	t.Helper()
	texts := func(query string) []string {
		t.Helper()
		rows, err := db.Query(t.Context(), query)
		kit.NoErr(t, err)
		found, err := pgx.CollectRows(rows, pgx.RowTo[string])
		kit.NoErr(t, err)
		return found
	}
	for _, table := range texts("select tablename::text from pg_tables where schemaname = 'perdure'") {
		for _, row := range texts("select t::text from " + (pgx.Identifier{"perdure", table}).Sanitize() + " t") {
			all = append(all, row+"\n"...)
		}
	}
	return all
}

// Nothing that a user gave, in any field, is in a cell, a journal, a name, or a file of
// the store or the archive once they are erased. Files of servers may have it until the
// server has cleaned them, see docs/guarantees.md.
func TestNothingOfAnErasedUserIsAnywhere(t *testing.T) {
	for name, open := range engines() {
		t.Run(name, func(t *testing.T) {
			p, folder := newPlace(t)
			e := open(t)
			t.Cleanup(func() { e.Close() })
			gone, stays := kit.NewCanary(), kit.NewCanary()
			o := perdure.Options{Archive: p, Validator: kit.Accepting{}}
			liveAsUser(t, kit.New(t, e, o, gone.Flow("gone")), gone, "gone")
			k := kit.New(t, e, o, stays.Flow("stays"))
			liveAsUser(t, k, stays, "stays")

			data, names := kit.Contents(t, e)
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
			if e.rows != nil && !gone.FoundIn(e.rows()) {
				t.Error("the rows do not show what the store holds")
			}
			inFiles := func(c *kit.Canary) []string {
				if e.files == "" {
					return nil
				}
				return filesWith(t, e.files, c)
			}
			shows := e.files != "" && !e.masked // a scan of the files shows what is there
			if e.flush != nil {
				e.flush()
			}
			if len(filesWith(t, folder, gone)) == 0 || shows && len(inFiles(gone)) == 0 {
				t.Error("the scan finds nothing before the erase")
			}

			_, err := k.EraseUser(t.Context(), gone.In("user"), perdure.EraseUserOptions{By: gone.In("who erased"), Reason: gone.In("why erased")})
			kit.NoErr(t, err)
			data, names = kit.Contents(t, e)
			if gone.FoundIn(data) || gone.FoundIn(names) || !stays.FoundIn(data) {
				t.Errorf("the store holds the erased user: %t, %t; the other: %t", gone.FoundIn(data), gone.FoundIn(names), stays.FoundIn(data))
			}
			if e.rows != nil && gone.FoundIn(e.rows()) {
				t.Error("rows hold the erased user")
			}
			if e.clean != nil {
				e.clean()
				begun := time.Now()
				for len(inFiles(gone)) > 0 && time.Since(begun) < 5*time.Minute {
					time.Sleep(20 * time.Millisecond) // the server does it in the background
				}
			}
			look := func(when string) {
				if found := append(filesWith(t, folder, gone), inFiles(gone)...); len(found) > 0 {
					t.Errorf("%s it is in %q", when, found)
				}
			}
			look("when EraseUser has returned")
			if len(filesWith(t, folder, stays)) == 0 || shows && len(inFiles(stays)) == 0 {
				t.Error("the scan finds nothing of the user who stays")
			}
			kit.NoErr(t, e.Close())
			look("after Close")
		})
	}
}

// TestMigratedToAnotherStream: a server of NATS keeps old versions of cells and deleted ones
// in its files. They are not in the stream that the store is migrated to, and go with the
// old one.
func TestMigratedToAnotherStream(t *testing.T) {
	server := natstest.Start(t, natstest.Config{})
	open := func(stream string) store.Store {
		s, err := store.Open(t.Context(), natstest.With(server.URL(), "stream", stream))
		kit.NoErr(t, err)
		t.Cleanup(func() { s.Close() })
		return s
	}
	from, to := open("old"), open("new")
	gone, stays := kit.NewCanary(), kit.NewCanary()
	rt := kit.Runtime(t, from, perdure.Options{})
	for user, c := range map[string]*kit.Canary{"ann": gone, "bob": stays} {
		_, err := rt.Create(t.Context(), perdure.CreateRequest{Thread: "t-" + user, User: user, Title: c.In("title"), Metadata: map[string]string{"m": c.In("metadata")}})
		kit.NoErr(t, err)
	}
	_, err := rt.EraseUser(t.Context(), "ann", perdure.EraseUserOptions{})
	kit.NoErr(t, err)
	if len(filesWith(t, server.Dir, gone)) == 0 {
		t.Error("the server has cleaned its files by itself: the migration shows nothing")
	}

	_, err = migrate.Run(t.Context(), from, to, migrate.Options{To: "new", Grace: 1})
	kit.NoErr(t, err)
	kit.NoErr(t, from.Close())
	nc, err := natsclient.Connect(server.URL())
	kit.NoErr(t, err)
	defer nc.Close()
	js, err := jetstream.New(nc)
	kit.NoErr(t, err)
	kit.NoErr(t, js.DeleteStream(t.Context(), "old"))
	for begun := time.Now(); len(filesWith(t, server.Dir, gone)) > 0; time.Sleep(20 * time.Millisecond) { // the server may do it in the background
		if time.Since(begun) > time.Minute {
			t.Fatalf("it is in %q", filesWith(t, server.Dir, gone))
		}
	}
	if len(filesWith(t, server.Dir, stays)) == 0 {
		t.Error("nothing is there of the user who stays")
	}
	th, err := kit.Runtime(t, to, perdure.Options{}).Get(t.Context(), "t-bob")
	if err != nil || th.Title != stays.In("title") {
		t.Errorf("the thread that stays: %+v, %v", th, err)
	}
}

package backup_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/backup"
	"github.com/perdure/perdure/internal/kit"
	"github.com/perdure/perdure/internal/threads"
	"github.com/perdure/perdure/store"
	_ "github.com/perdure/perdure/store/filestore"
	"github.com/perdure/perdure/store/memstore"
	_ "github.com/perdure/perdure/store/sqlitestore"
)

// engines are the stores that can be backed up, by the beginning of a URL that is
// completed by a new path.
var engines = []string{"file", "sqlite"}

func each(t *testing.T, test func(t *testing.T, engine string)) {
	for _, engine := range engines {
		t.Run(engine, func(t *testing.T) { test(t, engine) })
	}
}

func open(ctx context.Context, url string) (store.Store, error) { return store.Open(ctx, url) }

func openAt(t testing.TB, engine, path string) store.Store {
	t.Helper()
	s, err := store.Open(t.Context(), engine+":"+path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

// restored opens what a backup is restored to.
func restored(t testing.TB, engine, dir string) store.Store {
	t.Helper()
	path := filepath.Join(t.TempDir(), "restored")
	if _, err := backup.Restore(t.Context(), dir, engine+":"+path, path, open); err != nil {
		t.Fatal(err)
	}
	return openAt(t, engine, path)
}

// load writes to a store in an order in which a copy at one moment shows. Writer w
// appends entry n to its journal, then writes n to its cell; every tenth n it also
// begins a journal, names it in a cell, drops it, and deletes the cell.
type load struct {
	s     store.Store
	acked [writers]atomic.Int64
	tell  func(w int, n int64) // after each write to a cell
}

const writers = 4

func (l *load) write(ctx context.Context, w int) error {
	entries, err := store.ReadAll(ctx, l.s, journalOf(w), 0)
	if err != nil {
		return err
	}
	if n := len(entries); n > 0 { // a process that was killed may not have
		if _, err := store.Update(ctx, l.s, cellOf(w), func(store.Cell) ([]byte, error) { return fmt.Append(nil, n), nil }); err != nil {
			return err
		}
	}
	for n := int64(len(entries)) + 1; ctx.Err() == nil; n++ {
		text := fmt.Appendf(nil, "%d %s", n, strings.Repeat("x", int(n%97)*20))
		if _, err := store.AppendOnce(ctx, l.s, journalOf(w), uint64(n-1), text); err != nil {
			return err
		}
		if _, err := store.Update(ctx, l.s, cellOf(w), func(store.Cell) ([]byte, error) { return fmt.Append(nil, n), nil }); err != nil {
			return err
		}
		l.acked[w].Store(n)
		if l.tell != nil {
			l.tell(w, n)
		}
		if n%10 != 0 {
			continue
		}
		brief := fmt.Sprintf("brief/%d/%d", w, n)
		v, err := l.s.Put(ctx, brief, []byte("x"), "")
		if err == nil {
			_, err = l.s.Append(ctx, brief, 0, []byte("x"))
		}
		if err == nil {
			err = l.s.Drop(ctx, brief)
		}
		if err == nil {
			err = l.s.Delete(ctx, brief, v)
		}
		if err != nil && !errors.Is(err, store.ErrBusy) { // an erase that a copy holds up
			return err
		}
	}
	return ctx.Err()
}

func journalOf(w int) string { return fmt.Sprint("journal/", w) }
func cellOf(w int) string    { return fmt.Sprint("cell/", w) }

// check returns an error unless a store is what a load left at one moment, with at
// least so many entries of each writer.
func check(ctx context.Context, s store.Store, least [writers]int64) error {
	for w := range writers {
		entries, err := store.ReadAll(ctx, s, journalOf(w), 0)
		if err != nil {
			return err
		}
		for i, e := range entries {
			if got, _, _ := strings.Cut(string(e.Data), " "); got != fmt.Sprint(i+1) {
				return fmt.Errorf("writer %d: entry %d is %q", w, i+1, got)
			}
		}
		n, cell := int64(len(entries)), int64(0)
		c, err := s.Get(ctx, cellOf(w))
		if err == nil {
			_, err = fmt.Sscan(string(c.Value), &cell)
		} else if errors.Is(err, store.ErrNotFound) {
			err = nil
		}
		if err != nil {
			return err
		}
		if n < least[w] || cell < least[w] || cell != n && cell != n-1 {
			return fmt.Errorf("writer %d: %d entries, the cell says %d, and %d were acknowledged before", w, n, cell, least[w])
		}
	}
	for name, err := range s.Journals(ctx, "brief/") {
		if err != nil {
			return err
		}
		if !strings.HasPrefix(name, "brief/") {
			break
		}
		if _, err := s.Get(ctx, name); err != nil {
			return fmt.Errorf("a journal whose cell was written before it: %w", err)
		}
	}
	return nil
}

// TestUnderLoad takes backups one after the other while a store is written to.
func TestUnderLoad(t *testing.T) {
	each(t, func(t *testing.T, engine string) {
		s := openAt(t, engine, filepath.Join(t.TempDir(), "store"))
		ctx, stop := context.WithCancel(t.Context())
		l := &load{s: s}
		var all sync.WaitGroup
		for w := range writers {
			all.Go(func() {
				if err := l.write(ctx, w); !errors.Is(err, context.Canceled) {
					t.Errorf("writer %d: %v", w, err)
				}
			})
		}
		rounds := 8
		if testing.Short() {
			rounds = 3
		}
		for n := range rounds {
			var least [writers]int64
			for w := range writers {
				least[w] = l.acked[w].Load()
			}
			dir := filepath.Join(t.TempDir(), "backup")
			m, err := backup.Take(ctx, s, dir)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := backup.Verify(ctx, dir); err != nil {
				t.Error(err)
			}
			if err := check(ctx, restored(t, engine, dir), least); err != nil {
				t.Errorf("backup %d, %+v: %v", n, m, err)
			}
		}
		stop()
		all.Wait()
	})
}

// countdown is a context that ends when it is asked for the n-th time.
type countdown struct {
	context.Context
	left   atomic.Int64
	cancel context.CancelFunc
}

func newCountdown(ctx context.Context, n int) *countdown {
	c := &countdown{}
	c.Context, c.cancel = context.WithCancel(ctx)
	c.left.Store(int64(n))
	return c
}

func (c *countdown) Err() error {
	if c.left.Add(-1) < 0 {
		c.cancel()
	}
	return c.Context.Err()
}

// filled returns a store with a little of everything.
func filled(t *testing.T, engine string) store.Store {
	s := openAt(t, engine, filepath.Join(t.TempDir(), "store"))
	for i := range 5 {
		name := fmt.Sprint("n", i)
		_, err := s.Append(t.Context(), name, 0, []byte(name), bytes.Repeat([]byte("z"), 5000))
		kit.NoErr(t, err)
		_, err = s.Put(t.Context(), name, []byte(name), "")
		kit.NoErr(t, err)
	}
	kit.NoErr(t, s.Drop(t.Context(), "n3"))
	return s
}

// wantNothingIn expects a folder to be empty.
func wantNothingIn(t *testing.T, dir string) {
	t.Helper()
	files, err := os.ReadDir(dir)
	kit.NoErr(t, err)
	if len(files) > 0 {
		t.Errorf("%s is left", files[0].Name())
	}
}

// TestCancelled ends a backup, and a restore, wherever they look whether to go on.
func TestCancelled(t *testing.T) {
	each(t, func(t *testing.T, engine string) {
		s := filled(t, engine)
		dir := ""
		for n, step := 0, 1; dir == ""; n, step = n+step, step+n/20 {
			parent := t.TempDir()
			ctx := newCountdown(t.Context(), n)
			_, err := backup.Take(ctx, s, filepath.Join(parent, "b"))
			ctx.cancel()
			if err == nil {
				if n < 10 {
					t.Errorf("a backup asks only %d times whether to go on", n)
				}
				dir = filepath.Join(parent, "b")
				continue
			}
			kit.WantErr(t, "a cancelled backup", err, context.Canceled)
			wantNothingIn(t, parent)
		}
		for n := 0; ; n++ {
			parent := t.TempDir()
			path := filepath.Join(parent, "r")
			ctx := newCountdown(t.Context(), n)
			_, err := backup.Restore(ctx, dir, engine+":"+path, path, open)
			ctx.cancel()
			if err == nil {
				break
			}
			kit.WantErr(t, "a cancelled restore", err, context.Canceled)
			wantNothingIn(t, parent)
		}
		got := kit.Holdings(t, restored(t, engine, dir))
		if diff := cmp.Diff(strip(kit.Holdings(t, s)), strip(got)); diff != "" {
			t.Errorf("what is restored differs:\n%s", diff)
		}
	})
}

// strip leaves out what a restore adds.
func strip(held map[string]string) map[string]string {
	for key := range held {
		if strings.Contains(key, threads.RestoredCell) {
			delete(held, key)
		}
	}
	return held
}

// TestRefused restores what is no whole backup, and over what is there.
func TestRefused(t *testing.T) {
	each(t, func(t *testing.T, engine string) {
		s, dir := filled(t, engine), filepath.Join(t.TempDir(), "b")
		_, err := backup.Take(t.Context(), s, dir)
		kit.NoErr(t, err)
		_, err = backup.Take(t.Context(), s, dir)
		kit.WantErr(t, "a backup to a folder that exists", err, perdure.ErrInvalid)
		path := filepath.Join(t.TempDir(), "r")
		try := func(what string, want error) {
			t.Helper()
			_, err := backup.Restore(t.Context(), dir, engine+":"+path, path, open)
			kit.WantErr(t, what, err, want)
		}
		for _, ending := range []string{"", "-wal"} {
			kit.NoErr(t, os.WriteFile(path+ending, []byte("x"), 0o600))
			try("a restore to a place with "+ending, perdure.ErrInvalid)
			kit.NoErr(t, os.Remove(path+ending))
		}
		other := map[string]string{"file": "sqlite", "sqlite": "file"}[engine]
		_, err = backup.Restore(t.Context(), dir, other+":"+path, path, open)
		kit.WantErr(t, "a restore to another engine", err, perdure.ErrInvalid)

		damage := func(what string, change func(path string, data []byte)) {
			t.Helper()
			var files []string
			kit.NoErr(t, filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
				if err == nil && !d.IsDir() && d.Name() != "BACKUP.json" {
					files = append(files, path)
				}
				return err
			}))
			for _, file := range files {
				data, err := os.ReadFile(file)
				kit.NoErr(t, err)
				change(file, data)
				_, err = backup.Verify(t.Context(), dir)
				kit.WantErr(t, "verifying "+what, err, perdure.ErrCorrupt)
				try("restoring "+what, perdure.ErrCorrupt)
				kit.NoErr(t, os.WriteFile(file, data, 0o600))
			}
		}
		damage("a changed file", func(path string, data []byte) {
			data = bytes.Clone(data)
			if len(data) == 0 {
				data = []byte("x")
			}
			data[len(data)/2] ^= 1
			kit.NoErr(t, os.WriteFile(path, data, 0o600))
		})
		damage("a missing file", func(path string, _ []byte) { kit.NoErr(t, os.Remove(path)) })
		_, err = backup.Verify(t.Context(), dir)
		kit.NoErr(t, err)

		manifest := filepath.Join(dir, "BACKUP.json")
		data, err := os.ReadFile(manifest)
		kit.NoErr(t, err)
		var m map[string]any
		kit.NoErr(t, json.Unmarshal(data, &m))
		for member, change := range map[string]struct {
			value any
			want  error
		}{"format": {99, perdure.ErrNewer}, "perdure": {"x", perdure.ErrCorrupt}, "store": {engine + ":../x", perdure.ErrCorrupt}, "threads": {7, perdure.ErrCorrupt}, "taken": {"2020-01-01T00:00:00Z", perdure.ErrCorrupt}} {
			was := m[member]
			m[member] = change.value
			changed, err := json.Marshal(m)
			kit.NoErr(t, err)
			kit.NoErr(t, os.WriteFile(manifest, changed, 0o600))
			try("a manifest with another "+member, change.want)
			m[member] = was
		}
		kit.NoErr(t, os.Remove(manifest))
		try("a folder without a manifest", perdure.ErrInvalid)
	})
	_, err := backup.Take(t.Context(), memstore.New(), filepath.Join(t.TempDir(), "b"))
	kit.WantErr(t, "a backup of a store without files", err, backup.ErrUnsupported)
}

// TestStream sends a backup, and cuts the stream off everywhere.
func TestStream(t *testing.T) {
	each(t, func(t *testing.T, engine string) {
		s := filled(t, engine)
		var all bytes.Buffer
		kit.NoErr(t, backup.Send(t.Context(), s, &all, func(*backup.Manifest) {}))
		dir := filepath.Join(t.TempDir(), "b")
		_, err := backup.Receive(t.Context(), bytes.NewReader(all.Bytes()), dir)
		kit.NoErr(t, err)
		if diff := cmp.Diff(kit.Holdings(t, s), strip(kit.Holdings(t, restored(t, engine, dir)))); diff != "" {
			t.Errorf("what is restored differs:\n%s", diff)
		}
		whole := bytes.LastIndex(all.Bytes(), []byte("}\n")) + 2 // the end of the manifest
		for n := 0; n < whole; n += 509 {
			parent := t.TempDir()
			_, err := backup.Receive(t.Context(), bytes.NewReader(all.Bytes()[:n]), filepath.Join(parent, "b"))
			if !errors.Is(err, io.ErrUnexpectedEOF) && !errors.Is(err, perdure.ErrCorrupt) {
				t.Errorf("a stream cut at %d of %d = %v", n, whole, err)
			}
			wantNothingIn(t, parent)
		}
		hostile := bytes.ReplaceAll(all.Bytes(), []byte("store"), []byte("../xx"))
		if _, err := backup.Receive(t.Context(), bytes.NewReader(hostile), filepath.Join(t.TempDir(), "b")); err == nil {
			t.Error("a stream with names outside of the folder is accepted")
		}
	})
}

package pgstore_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/perdure/perdure/internal/pgtest"
	"github.com/perdure/perdure/store"
	"github.com/perdure/perdure/store/pgstore"
	"github.com/perdure/perdure/store/storetest"
)

// relay starts a proxy to the tests' server and returns its URL. Carry connects the
// two ends of a connection until it is over.
func relay(t *testing.T, carry func(near, far net.Conn)) string {
	t.Helper()
	base := pgtest.URL(t)
	_, rest, _ := strings.Cut(base, "@")
	server, _, _ := strings.Cut(rest, "/")
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			near, err := l.Accept()
			if err != nil {
				return
			}
			far, err := net.Dial("tcp", server)
			if err != nil {
				near.Close()
				continue
			}
			go func() {
				defer near.Close()
				defer far.Close()
				carry(near, far)
			}()
		}
	}()
	return strings.Replace(base, server, l.Addr().String(), 1)
}

// flaky starts a proxy that cuts each connection after a random number of bytes. It
// returns its URL and the number of cuts.
func flaky(t *testing.T) (string, *atomic.Int64) {
	cuts := new(atomic.Int64)
	return relay(t, func(near, far net.Conn) {
		var left atomic.Int64
		left.Store(4000 + rand.Int64N(30_000)) // a connection takes about 3000 to begin
		over := make(chan struct{}, 2)
		for _, way := range [][2]net.Conn{{near, far}, {far, near}} {
			go func() {
				defer func() { over <- struct{}{} }()
				for buf := make([]byte, 4096); ; {
					n, err := way[1].Read(buf)
					room := left.Add(-int64(n))
					if room < 0 {
						n = max(0, n+int(room))
					}
					if _, wrote := way[0].Write(buf[:n]); err != nil || wrote != nil {
						return
					}
					if room < 0 {
						cuts.Add(1)
						return
					}
				}
			}()
		}
		<-over
	}), cuts
}

// TestLostAnswers cuts the connections of writers of batches. Each append takes
// effect exactly once, with its cell, and refused ones do not.
func TestLostAnswers(t *testing.T) {
	const writers = 8
	each := 150
	if testing.Short() {
		each = 40
	}
	near, cuts := flaky(t)
	dir := t.TempDir()
	var s *pgstore.Store
	for s == nil {
		var err error
		if s, err = pgstore.Open(t.Context(), pgtest.Schema(near, dir), pgstore.Options{}); err != nil && !errors.Is(err, store.ErrUnavailable) {
			t.Fatal(err)
		}
	}
	defer s.Close()
	var wg sync.WaitGroup
	for w := range writers {
		wg.Go(func() {
			journal := fmt.Sprint("journal ", w)
			for n := range each {
				b := store.Batch{Journal: journal, After: uint64(n), Entries: [][]byte{fmt.Appendf(nil, "%s entry %d", journal, n)},
					Cells: []store.Write{{Key: fmt.Sprintf("cell %d %d", w, n), Value: make([]byte, 500)}}}
				if _, err := store.AppendWith(store.Patient(t.Context()), s, b); err != nil {
					t.Errorf("append %d to %s: %v", n, journal, err)
					return
				}
			}
		})
	}
	wg.Wait()
	straight, err := pgstore.Open(t.Context(), pgtest.Schema(pgtest.URL(t), dir), pgstore.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer straight.Close()
	for w := range writers {
		journal := fmt.Sprint("journal ", w)
		entries, err := store.ReadAll(t.Context(), straight, journal, 0)
		if err != nil || len(entries) != each {
			t.Fatalf("%s has %d entries, %v; want %d", journal, len(entries), err, each)
		}
		for n, e := range entries {
			if want := fmt.Sprintf("%s entry %d", journal, n); string(e.Data) != want {
				t.Errorf("entry %d of %s is %q, want %q", e.Seq, journal, e.Data, want)
			}
			if _, err := straight.Get(t.Context(), fmt.Sprintf("cell %d %d", w, n)); err != nil {
				t.Errorf("the cell of entry %d of %s: %v", e.Seq, journal, err)
			}
		}
	}
	if t.Logf("%d appends, %d cuts", writers*each, cuts.Load()); cuts.Load() == 0 {
		t.Error("nothing was cut")
	}
}

// TestOutageIsNoStorm has a thousand callers that try again and again while every
// connection is refused: the server meets a few attempts, not thousands. All callers
// go on when it is back.
func TestOutageIsNoStorm(t *testing.T) {
	const callers, each, most = 1000, 3, 100
	var away atomic.Bool
	var dials, failed atomic.Int64
	near := relay(t, func(near, far net.Conn) {
		dials.Add(1)
		if away.Load() {
			return
		}
		over := make(chan struct{}, 2)
		for _, way := range [][2]net.Conn{{near, far}, {far, near}} {
			go func() {
				io.Copy(way[0], way[1])
				over <- struct{}{}
			}()
		}
		<-over
	})
	s, err := pgstore.Open(t.Context(), pgtest.Schema(near, t.TempDir()), pgstore.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	away.Store(true)
	dials.Store(0)
	var waiting, ended sync.WaitGroup
	waiting.Add(callers)
	for i := range callers {
		ended.Go(func() {
			call := func() error {
				switch i % 4 {
				case 0:
					_, err := s.Append(t.Context(), fmt.Sprint("journal ", i), 0, []byte("entry"))
					return err
				case 1:
					tx, err := s.Begin(t.Context(), nil)
					if err == nil {
						err = tx.Rollback()
					}
					return err
				}
				_, err := s.Get(t.Context(), "none")
				return err
			}
			for n := 1; ; n++ {
				err := call()
				if !errors.Is(err, store.ErrUnavailable) {
					if n <= each || err != nil && !errors.Is(err, store.ErrNotFound) {
						t.Errorf("call %d of caller %d: %v", n, i, err)
					}
					return
				}
				if failed.Add(1); n == each {
					waiting.Done()
				}
			}
		})
	}
	waiting.Wait()
	n := dials.Load()
	away.Store(false)
	ended.Wait()
	if t.Logf("%d calls failed while %d connections were tried", failed.Load(), n); n > most {
		t.Errorf("%d connections were tried for %d calls, want at most %d", n, failed.Load(), most)
	}
}

// TestServerRestarts stops the server under a handle: its calls return
// ErrUnavailable, and succeed once the server is back.
func TestServerRestarts(t *testing.T) {
	server := pgtest.Start(t)
	s := openSchema(t, server.URL)
	ctx := t.Context()
	if _, err := s.Append(ctx, "j", 0, []byte("before")); err != nil {
		t.Fatal(err)
	}
	if err := server.Ctl("stop", "-m", "immediate"); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Append(ctx, "j", 1, []byte("meanwhile")); !errors.Is(err, store.ErrUnavailable) {
		t.Errorf("Append without a server = %v, want ErrUnavailable", err)
	}
	if _, err := s.Get(ctx, "c"); !errors.Is(err, store.ErrUnavailable) {
		t.Errorf("Get without a server = %v, want ErrUnavailable", err)
	}
	if err := server.Ctl("start"); err != nil {
		t.Fatal(err)
	}
	if _, err := store.AppendOnce(store.Patient(ctx), s, "j", 1, []byte("after")); err != nil {
		t.Fatal(err)
	}
	if entries, err := store.ReadAll(ctx, s, "j", 0); err != nil || len(entries) != 2 {
		t.Errorf("the journal has %d entries, %v", len(entries), err)
	}
}

// TestOutage stops the server, and makes it read-only as one is that another has
// taken over from.
func TestOutage(t *testing.T) {
	server := pgtest.Start(t)
	ctl := func(args ...string) {
		t.Helper()
		if err := server.Ctl(args...); err != nil {
			t.Fatal(err)
		}
	}
	writable := pgtest.With(server.URL, "default_transaction_read_only", "off")
	for name, fail := range map[string]func(on bool){
		"stopped": func(on bool) {
			if on {
				ctl("stop", "-m", "immediate")
			} else {
				ctl("start")
			}
		},
		"read-only": func(on bool) {
			admin(t, writable, fmt.Sprintf("ALTER DATABASE postgres SET default_transaction_read_only = %t", on),
				"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()")
		},
	} {
		t.Run(name, func(t *testing.T) {
			storetest.Outage(t, func(ctx context.Context, dir string) (store.Store, func(bool), error) {
				s, err := pgstore.Open(ctx, pgtest.Schema(server.URL, dir), pgstore.Options{})
				return s, func(on bool) {
					fail(on)
					if err := s.Delete(ctx, "none", "none"); on && !errors.Is(err, store.ErrUnavailable) {
						t.Errorf("a delete says %v, want store.ErrUnavailable", err)
					}
				}, err
			})
		})
	}
}

// TestDatabaseIsDropped drops the database of an open handle, as for a restore. Calls
// say so at once, as Open does, and it is an outage, which may end.
func TestDatabaseIsDropped(t *testing.T) {
	base, name := pgtest.URL(t), pgtest.Name()
	admin(t, base, "CREATE DATABASE "+name)
	t.Cleanup(func() { admin(t, base, "DROP DATABASE IF EXISTS "+name+" WITH (FORCE)") })
	url := strings.Replace(base, "/postgres?", "/"+name+"?", 1)
	s := openSchema(t, url)
	admin(t, base, "DROP DATABASE "+name+" WITH (FORCE)")
	for what, call := range map[string]func() error{
		"Get": func() error {
			_, err := s.Get(t.Context(), "none")
			return err
		},
		"Append": func() error {
			_, err := s.Append(t.Context(), "j", 0, []byte("entry"))
			return err
		},
		"Begin": func() error {
			_, err := s.Begin(t.Context(), nil)
			return err
		},
	} {
		err := call()
		for n := 0; n < 100 && errors.Is(err, store.ErrUnavailable) && !errors.Is(err, pgstore.ErrNoDatabase); n++ { // on connections that are lost
			err = call()
		}
		if !errors.Is(err, store.ErrUnavailable) || !errors.Is(err, pgstore.ErrNoDatabase) {
			t.Errorf("%s = %v, want ErrNoDatabase that is ErrUnavailable", what, err)
		}
	}
	if _, err := pgstore.Open(t.Context(), url, pgstore.Options{}); !errors.Is(err, pgstore.ErrNoDatabase) || errors.Is(err, store.ErrUnavailable) {
		t.Errorf("Open = %v, want ErrNoDatabase that is not ErrUnavailable", err)
	}
}

// TestUserIsLockedOut takes the right to log in from the user of an open handle, as
// with a new password: that is an outage, which ends when the user may again.
func TestUserIsLockedOut(t *testing.T) {
	base, user := pgtest.URL(t), pgtest.Name()
	admin(t, base, "CREATE ROLE "+user+" LOGIN", "GRANT CREATE ON DATABASE postgres TO "+user)
	t.Cleanup(func() { admin(t, base, "DROP OWNED BY "+user+" CASCADE", "DROP ROLE "+user) })
	url := pgtest.Schema(strings.Replace(base, "postgres@", user+"@", 1), t.TempDir())
	s, err := pgstore.Open(t.Context(), url, pgstore.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	admin(t, base, "ALTER ROLE "+user+" NOLOGIN", "SELECT pg_terminate_backend(pid, 60000) FROM pg_stat_activity WHERE usename = '"+user+"'")
	_, err = s.Get(t.Context(), "none")
	for n := 0; n < 100 && errors.Is(err, store.ErrUnavailable) && !errors.Is(err, pgstore.ErrPassword); n++ { // on connections that are lost
		_, err = s.Get(t.Context(), "none")
	}
	if !errors.Is(err, store.ErrUnavailable) || !errors.Is(err, pgstore.ErrPassword) {
		t.Errorf("Get = %v, want ErrPassword that is ErrUnavailable", err)
	}
	if _, err := pgstore.Open(t.Context(), url, pgstore.Options{}); !errors.Is(err, pgstore.ErrPassword) || errors.Is(err, store.ErrUnavailable) {
		t.Errorf("Open = %v, want ErrPassword that is not ErrUnavailable", err)
	}
	admin(t, base, "ALTER ROLE "+user+" LOGIN")
	if _, err := store.AppendOnce(store.Patient(t.Context()), s, "j", 0, []byte("entry")); err != nil {
		t.Error(err)
	}
}

package redisstore_test

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/perdure/perdure/internal/redistest"
	"github.com/perdure/perdure/store"
	"github.com/perdure/perdure/store/redisstore"
)

// client returns a client for a test to do with a server what it likes.
func client(tb testing.TB, url string) *redis.Client {
	tb.Helper()
	o, err := redis.ParseURL(strings.SplitN(url, "?", 2)[0])
	if err != nil {
		tb.Fatal(err)
	}
	c := redis.NewClient(o)
	tb.Cleanup(func() { c.Close() })
	return c
}

// admin sends commands to a server.
func admin(tb testing.TB, url string, commands ...string) {
	tb.Helper()
	c := client(tb, url)
	for _, command := range commands {
		var args []any
		for _, arg := range strings.Fields(command) {
			args = append(args, arg)
		}
		if err := c.Do(tb.Context(), args...).Err(); err != nil {
			tb.Fatalf("%s: %v", command, err)
		}
	}
}

func openURL(tb testing.TB, url string) *redisstore.Store {
	tb.Helper()
	s, err := redisstore.Open(tb.Context(), url, redisstore.Options{})
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { s.Close() })
	return s
}

// TestOpenRefuses makes the mistakes of a newcomer.
func TestOpenRefuses(t *testing.T) {
	base := redistest.URL(t)
	locked := redistest.Start(t)
	admin(t, locked.URL, "ACL SETUSER ann on >right ~* &* +@all", "ACL SETUSER guest on >right ~* &* +get +info +config +hello +client")
	cache := redistest.Start(t, "--maxmemory-policy", "allkeys-lru")
	replica := redistest.Start(t, "--replicaof", "127.0.0.1 "+locked.Port)
	guarded := redistest.Start(t, "--requirepass", "s3cret")
	secure := httptest.NewUnstartedServer(http.NotFoundHandler()) // its handshake is like any other
	secure.Config.ErrorLog = log.New(io.Discard, "", 0)
	secure.StartTLS()
	t.Cleanup(secure.Close)
	foreign, newer, gone := redistest.Name(), redistest.Name(), redistest.Name()
	admin(t, base, "SET {"+foreign+"}:format theirs", "SET {"+newer+"}:format 1000", "ZADD {"+gone+"}:journals 0 j")
	as := func(who string) string { return strings.Replace(locked.URL, "redis://", "redis://"+who+"@", 1) }
	client(t, base).Set(t.Context(), "{"+newer+"}:format", "1000 id", 0)
	for _, c := range []struct {
		name, url string
		want      error
		says      string
	}{
		{"another's key", redistest.With(base, "prefix", foreign), store.ErrForeign, "?prefix="},
		{"a newer store", redistest.With(base, "prefix", newer), store.ErrNewer, "format 1000"},
		{"half a store", redistest.With(base, "prefix", gone), store.ErrCorrupt, "format"},
		{"a prefix", redistest.With(base, "prefix", "a}b{c"), store.ErrInvalid, "letters"},
		{"no database", base + "/4711", redisstore.ErrNoDatabase, "path of the URL"},
		{"no number", base + "/app", store.ErrInvalid, "invalid database number"},
		{"nobody listens", "redis://127.0.0.1:1", store.ErrUnavailable, "connect"},
		{"no URL", "redis://%zz", store.ErrInvalid, "redis://user:password@host"},
		{"no host", "redis:", store.ErrInvalid, "redis://user:password@host"},
		{"no password shown", "redis:ann:s3cret@host", store.ErrInvalid, "redis://user:password@host"},
		{"nor of a URL with a mistake", "redis://ann:s3cret@host:port", store.ErrInvalid, "redis://user:password@host"},
		{"a parameter", redistest.With(base, "colour", "red"), store.ErrInvalid, "colour"},
		{"a setting", redistest.With(base, "pool_size", "many"), store.ErrInvalid, "pool_size"},
		{"no store", redistest.With(redistest.With(base, "prefix", redistest.Name()), "existing", "true"), redisstore.ErrNoStore, "?prefix="},
		{"existing", redistest.With(base, "existing", "perhaps"), store.ErrInvalid, "true or false"},
		{"a wrong password", as("ann:s3cret"), redisstore.ErrPassword, "URL"},
		{"without rights", as("guest:right"), redisstore.ErrPassword, "ACL"},
		{"a cache", cache.URL, redisstore.ErrEvicts, "noeviction"},
		{"a replica", replica.URL, redisstore.ErrReplica, "addr="},
		{"no TLS", strings.Replace(base, "redis:", "rediss:", 1) + "?dial_timeout=300ms", store.ErrInvalid, "redis://"},
		{"no TLS, a password", strings.Replace(guarded.URL, "redis://", "rediss://:s3cret@", 1) + "?dial_timeout=300ms", store.ErrInvalid, "redis://"},
		{"TLS", "redis://" + strings.TrimPrefix(secure.URL, "https://"), store.ErrInvalid, "rediss://"},
		{"an untrusted certificate", "rediss://" + strings.TrimPrefix(secure.URL, "https://"), store.ErrInvalid, "authority"},
	} {
		t.Run(c.name, func(t *testing.T) {
			s, err := store.Open(t.Context(), c.url)
			if err == nil {
				s.Close()
				t.Fatalf("Open(%s) succeeded", c.url)
			}
			if !errors.Is(err, c.want) || !strings.Contains(err.Error(), c.says) {
				t.Errorf("Open(%s) = %v, want %v and %q", c.url, err, c.want, c.says)
			}
			if strings.Contains(err.Error(), "s3cret") {
				t.Errorf("the error has the password: %v", err)
			}
		})
	}
	openURL(t, as("ann:right"))
	// The primary is found among several servers.
	openURL(t, redistest.With(replica.URL, "addr", "127.0.0.1:"+locked.Port))
	redisstore.TooOld(t)
	if _, err := store.Open(t.Context(), base); !errors.Is(err, store.ErrInvalid) || !strings.Contains(err.Error(), "99 is the oldest that works") {
		t.Errorf("a server that is too old: %v", err)
	}
}

// TestDurability reads the class from the server's settings, also on connections that
// are made later.
func TestDurability(t *testing.T) {
	for _, c := range []struct {
		settings []string
		want     store.Durability
		says     string
	}{
		{redistest.Always, store.Power, ""},
		{[]string{"--appendonly", "yes", "--appendfsync", "always", "--no-appendfsync-on-rewrite", "yes"}, store.Process, "no-appendfsync-on-rewrite no"},
		{[]string{"--appendonly", "yes", "--appendfsync", "everysec"}, store.None, "not everysec"},
		{[]string{"--appendonly", "yes", "--appendfsync", "no"}, store.None, "appendfsync always"},
		{nil, store.None, "appendonly yes"},
		{append([]string{"--rename-command", "CONFIG", ""}, redistest.Always...), store.None, "CONFIG GET"},
	} {
		server := redistest.Start(t, c.settings...)
		s := openURL(t, server.URL)
		if got, says := store.DurabilityOf(s), s.Weakness(); got != c.want || !strings.Contains(says, c.says) || (says == "") != (got == store.Power) {
			t.Errorf("with %q the class is %v: %q; want %v", c.settings, got, says, c.want)
		}
		strict, err := store.Open(t.Context(), server.URL, store.Require(store.Power))
		if err == nil {
			strict.Close()
		}
		if (err == nil) != (c.want == store.Power) || err != nil && (!errors.Is(err, store.ErrWeak) || !strings.Contains(err.Error(), c.says)) {
			t.Errorf("with %q, Open that requires %v = %v", c.settings, store.Power, err)
		}
	}
	server := redistest.Start(t, redistest.Always...)
	s := openURL(t, server.URL)
	admin(t, server.URL, "CONFIG SET appendfsync everysec", "CLIENT KILL TYPE normal SKIPME yes")
	if _, err := s.Append(t.Context(), "j", 0, []byte("x")); !errors.Is(err, store.ErrWeak) {
		t.Errorf("an append to a server that has become weaker = %v, want ErrWeak", err)
	}
	admin(t, server.URL, "CONFIG SET appendfsync always", "FLUSHALL", "CLIENT KILL TYPE normal SKIPME yes")
	if _, err := s.Append(t.Context(), "j", 0, []byte("x")); !errors.Is(err, store.ErrCorrupt) {
		t.Errorf("an append to a server that has lost the store = %v, want ErrCorrupt", err)
	}
}

// TestReplies gives the errors of servers, of which some are hard to bring about.
func TestReplies(t *testing.T) {
	server := redistest.Start(t)
	c := client(t, server.URL)
	for _, r := range []struct {
		said string
		want error
	}{
		{"LOADING Redis is loading the dataset in memory", redisstore.ErrStarting},
		{"LOADING Redis is loading the dataset in memory", store.ErrUnavailable},
		{"READONLY You can't write against a read only replica.", redisstore.ErrReplica},
		{"READONLY You can't write against a read only replica.", store.ErrUnavailable},
		{"MASTERDOWN Link with MASTER is down", store.ErrUnavailable},
		{"MISCONF Errors writing to the AOF file: No space left on device", store.ErrFull},
		{"MISCONF Redis is configured to save RDB snapshots", store.ErrUnavailable},
		{"OOM command not allowed when used memory > 'maxmemory'.", store.ErrFull},
		{"BUSY Redis is busy running a script.", store.ErrBusy},
		{"NOREPLICAS Not enough good replicas to write.", store.ErrUnavailable},
		{"CLUSTERDOWN The cluster is down", store.ErrUnavailable},
		{"NOAUTH Authentication required.", redisstore.ErrPassword},
		{"NOPERM User guest has no permissions", redisstore.ErrPassword},
		{"WRONGTYPE Operation against a key", store.ErrCorrupt},
		{"ERR max number of clients reached", store.ErrUnavailable},
	} {
		err := c.Eval(t.Context(), "return redis.error_reply(ARGV[1])", nil, r.said).Err()
		if err == nil {
			t.Fatal("the script has no error")
		}
		if got := redisstore.Failed(err); !errors.Is(got, r.want) {
			t.Errorf("%s is %v, want %v", r.said, got, r.want)
		}
	}
	untrusted := redisstore.Failed(&tls.CertificateVerificationError{Err: x509.UnknownAuthorityError{}})
	if !errors.Is(untrusted, store.ErrUnavailable) || !strings.Contains(untrusted.Error(), "certificate") {
		t.Errorf("a server with a certificate that is not trusted is %v", untrusted)
	}
}

// TestFullMemory fills the memory of a server: writes are refused whole, reads go on,
// and what is no longer needed can be removed.
func TestFullMemory(t *testing.T) {
	server := redistest.Start(t, redistest.Always...)
	s := openURL(t, server.URL)
	ctx := t.Context()
	if _, err := s.Append(ctx, "j", 0, []byte("before")); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Append(ctx, "k", 0, []byte("x")); err != nil {
		t.Fatal(err)
	}
	old, err := s.Put(ctx, "old", []byte("x"), "")
	if err != nil {
		t.Fatal(err)
	}
	admin(t, server.URL, "CONFIG SET maxmemory 1")
	_, err = s.AppendBatch(ctx, store.Batch{Journal: "j", After: 1, Entries: [][]byte{[]byte("x")}, Cells: []store.Write{{Key: "c", Value: []byte("x")}}})
	if !errors.Is(err, store.ErrFull) || !strings.Contains(err.Error(), "maxmemory") {
		t.Errorf("a batch on a full server = %v, want ErrFull", err)
	}
	if entries, err := store.ReadAll(ctx, s, "j", 0); err != nil || len(entries) != 1 {
		t.Errorf("the journal has %d entries, %v", len(entries), err)
	}
	if _, err := s.Get(ctx, "c"); !errors.Is(err, store.ErrNotFound) {
		t.Errorf("the cell of a refused batch: %v", err)
	}
	if err := errors.Join(s.Delete(ctx, "old", old), s.Drop(ctx, "k")); err != nil {
		t.Errorf("nothing can be removed from a full server: %v", err)
	}
	admin(t, server.URL, "CONFIG SET maxmemory 0")
	if _, err := s.Append(ctx, "j", 1, []byte("after")); err != nil {
		t.Error(err)
	}
	if _, err := s.Get(ctx, "old"); !errors.Is(err, store.ErrNotFound) {
		t.Errorf("a cell that was deleted: %v", err)
	}
	if _, err := s.Append(ctx, "k", 1, []byte("x")); !errors.Is(err, store.ErrDropped) {
		t.Errorf("an append to a journal that was dropped = %v", err)
	}
}

// TestFlushed empties a server under a handle: each call says so, and none writes into
// what is left. Nor does it when the server has another store.
func TestFlushed(t *testing.T) {
	server := redistest.Start(t)
	s := openURL(t, server.URL)
	ctx := t.Context()
	if _, err := s.Append(ctx, "j", 0, []byte("x")); err != nil {
		t.Fatal(err)
	}
	cell, err := s.Put(ctx, "c", []byte("x"), "")
	if err != nil {
		t.Fatal(err)
	}
	calls := func(now string) {
		for call, do := range map[string]func() error{
			"Append": func() error { _, err := s.Append(ctx, "j", 0, []byte("x")); return err },
			"Put":    func() error { _, err := s.Put(ctx, "c", []byte("x"), ""); return err },
			"Delete": func() error { return s.Delete(ctx, "c", cell) },
			"Drop":   func() error { return s.Drop(ctx, "j") },
			"Read":   func() error { _, err := store.ReadAll(ctx, s, "j", 0); return err },
			"Get":    func() error { _, err := s.Get(ctx, "c"); return err },
			"List": func() (err error) {
				for _, err = range s.List(ctx, "", "") {
				}
				return err
			},
			"Journals": func() (err error) {
				for _, err = range s.Journals(ctx, "") {
				}
				return err
			},
		} {
			if err := do(); !errors.Is(err, store.ErrCorrupt) || !strings.Contains(err.Error(), "lost the store") {
				t.Errorf("%s on a server %s = %v, want ErrCorrupt", call, now, err)
			}
		}
	}
	admin(t, server.URL, "FLUSHALL")
	calls("that was emptied")
	if n := client(t, server.URL).DBSize(ctx).Val(); n != 0 {
		t.Errorf("the server has %d keys", n)
	}
	if entries, err := store.ReadAll(ctx, openURL(t, server.URL), "j", 0); err != nil || len(entries) != 0 {
		t.Errorf("a new store has %d entries, %v", len(entries), err)
	}
	calls("with another store")
}

// TestLostKeys removes keys of a store: what is missing is reported, and the rest is
// intact.
func TestLostKeys(t *testing.T) {
	name := redistest.Name()
	s := openURL(t, redistest.With(redistest.URL(t), "prefix", name))
	ctx := t.Context()
	for _, n := range []string{"a", "b", "c"} {
		if _, err := s.Append(ctx, n, 0, []byte("x")); err != nil {
			t.Fatal(err)
		}
		if _, err := s.Put(ctx, n, []byte("x"), ""); err != nil {
			t.Fatal(err)
		}
	}
	c := client(t, redistest.URL(t))
	c.Del(ctx, "{"+name+"}:j:b", "{"+name+"}:c:b")
	c.Set(ctx, "{"+name+"}:c:a", "short", 0)
	if _, err := store.ReadAll(ctx, s, "b", 0); !errors.Is(err, store.ErrCorrupt) {
		t.Errorf("Read of a journal without entries = %v, want ErrCorrupt", err)
	}
	if _, err := s.Append(ctx, "b", 0, []byte("y")); !errors.Is(err, store.ErrCorrupt) {
		t.Errorf("Append to a journal without entries = %v, want ErrCorrupt", err)
	}
	var found []string
	var damage error
	for cell, err := range s.List(ctx, "", "") {
		if err != nil {
			damage = err
			break
		}
		found = append(found, cell.Key)
	}
	if !errors.Is(damage, store.ErrCorrupt) || len(found) != 1 || found[0] != "c" {
		t.Errorf("List yields %q and then %v, want c and ErrCorrupt", found, damage)
	}
	if bad, ok := errors.AsType[*store.CorruptError](damage); !ok || bad.Cell != "a" {
		t.Errorf("the damage is %v, want that of cell a", damage)
	} else if err := s.Delete(ctx, "a", bad.Version); err != nil {
		t.Errorf("a damaged cell cannot be removed: %v", err)
	}
	_, err := s.Get(ctx, "b")
	bad, ok := errors.AsType[*store.CorruptError](err)
	if !ok || bad.Cell != "b" {
		t.Fatalf("Get of a cell without content = %v, want ErrCorrupt", err)
	}
	if _, err := s.Put(ctx, "b", []byte("y"), ""); !errors.Is(err, store.ErrCorrupt) {
		t.Errorf("Put of a cell without content as a new one = %v, want ErrCorrupt", err)
	}
	again, err := s.Put(ctx, "b", []byte("y"), bad.Version)
	if err != nil {
		t.Fatalf("a cell without content cannot be replaced: %v", err)
	}
	if cell, err := s.Get(ctx, "b"); err != nil || cell.Version != again || string(cell.Value) != "y" {
		t.Errorf("the cell is then %v, %v", cell, err)
	}
	c.Del(ctx, "{"+name+"}:c:b")
	if err := s.Delete(ctx, "b", bad.Version); err != nil {
		t.Errorf("a cell without content cannot be removed: %v", err)
	}
	if _, err := s.Get(ctx, "b"); !errors.Is(err, store.ErrNotFound) {
		t.Errorf("Get of a removed cell = %v", err)
	}
	c.Del(ctx, "{"+name+"}:c:c")
	c.LPush(ctx, "{"+name+"}:c:c", "theirs")
	if _, err := s.Get(ctx, "c"); !errors.Is(err, store.ErrCorrupt) {
		t.Errorf("Get of a list = %v, want ErrCorrupt", err)
	}
}

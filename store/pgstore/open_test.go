package pgstore_test

import (
	"context"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"io"
	"net"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/perdure/perdure/internal/pgtest"
	"github.com/perdure/perdure/store"
	"github.com/perdure/perdure/store/pgstore"
)

// admin runs statements on a server.
func admin(t *testing.T, url string, statements ...string) {
	t.Helper()
	ctx := context.Background() // also for cleanups
	c, err := pgx.Connect(ctx, url)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close(ctx)
	for _, sql := range statements {
		if _, err := c.Exec(ctx, sql); err != nil {
			t.Fatalf("%s: %v", sql, err)
		}
	}
}

// database creates a database, whose settings a test may change.
func database(t *testing.T, settings ...string) string {
	t.Helper()
	base, name := pgtest.URL(t), pgtest.Name()
	statements := []string{"CREATE DATABASE " + name}
	for _, s := range settings {
		statements = append(statements, "ALTER DATABASE "+name+" SET "+s)
	}
	admin(t, base, statements...)
	t.Cleanup(func() { admin(t, base, "DROP DATABASE "+name+" WITH (FORCE)") })
	return strings.Replace(base, "/postgres?", "/"+name+"?", 1)
}

// TestOpenRefuses makes the mistakes of a newcomer.
func TestOpenRefuses(t *testing.T) {
	base := pgtest.URL(t)
	foreign, newer := pgtest.Name(), pgtest.Name()
	admin(t, base, "CREATE SCHEMA "+foreign, "CREATE TABLE "+foreign+".bills ()",
		"CREATE SCHEMA "+newer, "CREATE TABLE "+newer+".format (number int)", "INSERT INTO "+newer+".format VALUES (1000)")
	reader, latin := pgtest.Name(), pgtest.Name()
	admin(t, base, "CREATE ROLE "+reader+" LOGIN", "CREATE DATABASE "+latin+" ENCODING 'LATIN1' TEMPLATE template0 LOCALE 'C'")
	t.Cleanup(func() { admin(t, base, "DROP ROLE "+reader, "DROP DATABASE "+latin+" WITH (FORCE)") })
	for _, c := range []struct {
		name, url string
		want      error
		says      string
	}{
		{"another's schema", pgtest.With(base, "schema", foreign), store.ErrForeign, "?schema="},
		{"a newer schema", pgtest.With(base, "schema", newer), store.ErrNewer, "format 1000"},
		{"a schema's name", pgtest.With(base, "schema", `x"; DROP`), store.ErrInvalid, "letters"},
		{"no database", strings.Replace(base, "/postgres?", "/nowhere?", 1), pgstore.ErrNoDatabase, "createdb"},
		{"nobody listens", "postgres://127.0.0.1:1/x?sslmode=disable", store.ErrUnavailable, "connect"},
		{"no URL", "postgres://%zz", store.ErrInvalid, "postgres://user@host"},
		{"no password shown", "postgres:ann:s3cret@host/db", store.ErrInvalid, "postgres://user@host"},
		{"nor in a parameter", pgtest.With(pgtest.With(base, "pool_max_conns", "many"), "password", "s3cret"), store.ErrInvalid, "pool_max_conns"},
		{"nor of a direct URL", pgtest.With(base, "direct", "ann:s3cret@host/db"), store.ErrInvalid, "direct URL"},
		{"no store", pgtest.With(pgtest.With(base, "schema", pgtest.Name()), "existing", "true"), pgstore.ErrNoStore, "?schema="},
		{"existing", pgtest.With(base, "existing", "perhaps"), store.ErrInvalid, "true or false"},
		{"an encoding", strings.Replace(base, "/postgres?", "/"+latin+"?", 1), pgstore.ErrEncoding, "createdb --encoding=UTF8"},
		{"a setting", pgtest.With(base, "pool_max_conns", "many"), store.ErrInvalid, "pool_max_conns"},
		{"who only reads", database(t, "default_transaction_read_only = on"), pgstore.ErrReplica, "default_transaction_read_only"},
		{"nobody", strings.Replace(base, "postgres@", "nobody_here@", 1), pgstore.ErrPassword, "PGUSER"},
		{"without rights", strings.Replace(base, "postgres@", reader+"@", 1), nil, "right"},
	} {
		t.Run(c.name, func(t *testing.T) {
			s, err := store.Open(t.Context(), c.url)
			if err == nil {
				s.Close()
				t.Fatalf("Open(%s) succeeded", c.url)
			}
			if c.want != nil && !errors.Is(err, c.want) || !strings.Contains(err.Error(), c.says) {
				t.Errorf("Open(%s) = %v, want %v and %q", c.url, err, c.want, c.says)
			}
			if strings.Contains(err.Error(), "s3cret") {
				t.Errorf("the error has the password: %v", err)
			}
		})
	}
}

// TestOpenWithoutRights opens a schema that was made for a user who may make none,
// and looks for a store without creating one.
func TestOpenWithoutRights(t *testing.T) {
	base, name := pgtest.URL(t), pgtest.Name()
	admin(t, base, "CREATE ROLE "+name+" LOGIN", "CREATE SCHEMA "+name+" AUTHORIZATION "+name)
	t.Cleanup(func() { admin(t, base, "DROP SCHEMA "+name+" CASCADE", "DROP ROLE "+name) })
	url := pgtest.With(strings.Replace(base, "postgres@", name+"@", 1), "schema", name)
	look := pgtest.With(url, "existing", "true")
	if _, err := store.Open(t.Context(), look); !errors.Is(err, pgstore.ErrNoStore) {
		t.Errorf("Open of an empty schema = %v, want ErrNoStore", err)
	}
	if _, err := store.Open(t.Context(), pgtest.With(url, "schema", name+"_2")); err == nil || !strings.Contains(err.Error(), "grant CREATE on the database") {
		t.Errorf("Open without a schema, and without the right to make one: %v", err)
	}
	for _, url := range []string{url, look} {
		s, err := store.Open(t.Context(), url)
		if err != nil {
			t.Fatal(err)
		}
		s.Close()
	}

	// A right that is revoked while the store is open may come back.
	s, err := store.Open(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	admin(t, base, "REVOKE ALL ON ALL TABLES IN SCHEMA "+name+" FROM "+name)
	if _, err := s.Append(t.Context(), "j", 0, []byte("x")); !errors.Is(err, store.ErrUnavailable) || !strings.Contains(err.Error(), "lacks a right") {
		t.Errorf("Append without the right to: %v, want ErrUnavailable", err)
	}
	admin(t, base, "GRANT ALL ON ALL TABLES IN SCHEMA "+name+" TO "+name)
	if _, err := s.Append(t.Context(), "j", 0, []byte("x")); err != nil {
		t.Errorf("Append with the right again: %v", err)
	}
}

// TestTLS opens a server with a certificate for 127.0.0.1 that nobody here trusts, and
// before that without one.
func TestTLS(t *testing.T) {
	server := pgtest.Start(t)
	with := func(params ...string) string {
		url := strings.Replace(server.URL, "sslmode=disable", "sslmode=verify-full", 1)
		for i := 0; i < len(params); i += 2 {
			url = pgtest.With(url, params[i], params[i+1])
		}
		return url
	}
	open := func(url string, want error, says string) {
		t.Helper()
		s, err := store.Open(t.Context(), url)
		if err == nil {
			s.Close()
		}
		if !errors.Is(err, want) || err != nil && !strings.Contains(err.Error(), says) || errors.Is(err, store.ErrUnavailable) {
			t.Errorf("Open(%s) = %v, want %v and %q", url, err, want, says)
		}
	}
	open(with(), pgstore.ErrCertificate, "sslmode=disable")

	// Without an sslmode, an attempt without TLS follows, and what it meets is the reason.
	plain := strings.Replace(server.URL, "sslmode=disable", "", 1)
	open(plain, nil, "")
	open(strings.Replace(plain, "/postgres?", "/nowhere?", 1), pgstore.ErrNoDatabase, "createdb")
	if _, err := store.Open(t.Context(), "postgres://ann@"+goesAway(t)+"/x"); !errors.Is(err, store.ErrUnavailable) || errors.Is(err, pgstore.ErrCertificate) {
		t.Errorf("Open of a server that goes away = %v, want ErrUnavailable", err)
	}

	https := httptest.NewTLSServer(nil)
	defer https.Close()
	key, err := x509.MarshalPKCS8PrivateKey(https.TLS.Certificates[0].PrivateKey)
	if err != nil {
		t.Fatal(err)
	}
	for name, block := range map[string]*pem.Block{"server.crt": {Type: "CERTIFICATE", Bytes: https.Certificate().Raw}, "server.key": {Type: "PRIVATE KEY", Bytes: key}} {
		file := filepath.Join(server.Dir, name) // which the server writes, since it wants to own it
		admin(t, server.URL, "COPY (SELECT unnest(string_to_array('"+string(pem.EncodeToMemory(block))+"', E'\n'))) TO '"+file+"'")
		if err := os.Chmod(file, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	admin(t, server.URL, "ALTER SYSTEM SET ssl = on")
	if err := server.Ctl("restart"); err != nil {
		t.Fatal(err)
	}
	root := filepath.Join(server.Dir, "server.crt")
	open(with("sslrootcert", root), nil, "")
	open(with(), pgstore.ErrCertificate, "sslrootcert=FILE")
	open(strings.Replace(with("sslrootcert", root), "127.0.0.1", "localhost", 1), pgstore.ErrCertificate, "as the certificate does")
}

// goesAway listens as a server that has no TLS, and ends each connection after it has
// said so.
func goesAway(t *testing.T) (address string) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			first := make([]byte, 8)
			if _, err := io.ReadFull(c, first); err == nil && first[4] == 4 { // the code of a request for TLS is 04D2162F
				c.Write([]byte("N"))
			}
			c.Close()
		}
	}()
	return l.Addr().String()
}

// TestOpenRefusesServers opens a server that requires a password, one that does not
// sync, a replica, and one that is not running yet.
func TestOpenRefusesServers(t *testing.T) {
	server := pgtest.Start(t)
	admin(t, server.URL, "CREATE ROLE ann LOGIN SUPERUSER PASSWORD 'right'", "ALTER SYSTEM SET fsync = off")
	hba := filepath.Join(server.Dir, "pg_hba.conf")
	if err := os.WriteFile(hba, []byte("host all ann 127.0.0.1/32 scram-sha-256\nhost all all 127.0.0.1/32 trust\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	refuse := func(url string, want error, opts ...store.OpenOption) {
		t.Helper()
		s, err := store.Open(t.Context(), url, opts...)
		if err == nil {
			s.Close()
		}
		if !errors.Is(err, want) {
			t.Errorf("Open = %v, want %v", err, want)
		}
		if err != nil && strings.Contains(err.Error(), "wrong") {
			t.Errorf("the error has the password: %v", err)
		}
	}
	if err := server.Ctl("restart"); err != nil {
		t.Fatal(err)
	}
	refuse(strings.Replace(server.URL, "postgres@", "ann:wrong@", 1), pgstore.ErrPassword)
	s, err := store.Open(t.Context(), strings.Replace(server.URL, "postgres@", "ann:right@", 1))
	if err != nil {
		t.Fatal(err)
	}
	s.Close()
	refuse(server.URL, store.ErrWeak, store.Require(store.Power))
	if err := os.WriteFile(filepath.Join(server.Dir, "standby.signal"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	if err := server.Ctl("restart"); err != nil {
		t.Fatal(err)
	}
	refuse(server.URL, pgstore.ErrReplica)
	if err := server.Ctl("stop", "-m", "immediate"); err != nil {
		t.Fatal(err)
	}
	refuse(server.URL, store.ErrUnavailable)
	// A server reports that it is starting for too short a time to catch.
	starting := pgstore.Failed(&pgconn.PgError{Code: "57P03", Message: "the database system is starting up"})
	if !errors.Is(starting, pgstore.ErrStarting) || !errors.Is(starting, store.ErrUnavailable) {
		t.Errorf("a server that starts is %v", starting)
	}
	// So does a pooler whose server is away, and a database that is being moved.
	for _, c := range []struct {
		severity, code string
		away           bool
	}{{"FATAL", "08P01", true}, {"ERROR", "08006", true}, {"FATAL", "55000", true}, {"ERROR", "55000", false}, {"FATAL", "57P05", true}} {
		if err := pgstore.Failed(&pgconn.PgError{Severity: c.severity, Code: c.code}); errors.Is(err, store.ErrUnavailable) != c.away {
			t.Errorf("%s %s is %v; is that ErrUnavailable: want %t", c.severity, c.code, err, c.away)
		}
	}
}

// TestDurability reads the class from the server's settings.
func TestDurability(t *testing.T) {
	for _, c := range []struct {
		setting string
		want    store.Durability
	}{
		{"synchronous_commit = on", store.Power},
		{"synchronous_commit = local", store.Power},
		{"synchronous_commit = off", store.Process},
	} {
		url := database(t, c.setting)
		s, err := store.Open(t.Context(), url)
		if err != nil {
			t.Fatal(err)
		}
		s.Close()
		if got := store.DurabilityOf(s); got != c.want {
			t.Errorf("with %s the class is %v, want %v", c.setting, got, c.want)
		}
		name, _, _ := strings.Cut(c.setting, " ")
		if weak, ok := store.As[store.Weak](s); !ok || strings.Contains(weak.Weakness(), name) != (c.want < store.Power) {
			t.Errorf("with %s the store does not say so: %v", c.setting, weak)
		}
		if s, err := store.Open(t.Context(), url, store.Require(store.Power)); (err == nil) != (c.want == store.Power) || err != nil && !errors.Is(err, store.ErrWeak) {
			t.Errorf("with %s, Open that requires %v = %v", c.setting, store.Power, err)
		} else if err == nil {
			s.Close()
		}
	}
}

// TestMigrate upgrades a schema of the first format to the current one, while a
// handle that was opened before keeps writing and several others open it at once.
func TestMigrate(t *testing.T) {
	base := pgtest.URL(t)
	url := pgtest.Schema(base, t.TempDir())
	older := openSchema(t, url)
	if _, err := older.Append(t.Context(), "j", 0, []byte("before")); err != nil {
		t.Fatal(err)
	}
	_, schema, _ := strings.Cut(url, "schema=")
	schema, _, _ = strings.Cut(schema, "&")
	admin(t, base, "SET search_path = "+schema, "DROP VIEW threads, history, runs, asks", "DROP FUNCTION field, moment", "UPDATE format SET number = 1")
	errs := make(chan error)
	for range 4 {
		go func() {
			s, err := pgstore.Open(context.Background(), url, pgstore.Options{})
			if err == nil {
				err = s.Close()
			}
			errs <- err
		}()
	}
	for n := range uint64(20) {
		if _, err := older.Append(t.Context(), "j", n+1, []byte("meanwhile")); err != nil {
			t.Fatal(err)
		}
	}
	for range 4 {
		if err := <-errs; err != nil {
			t.Error(err)
		}
	}
	if got := table(t, url, "SELECT seq FROM history"); len(got) != 21 {
		t.Errorf("the view has %d rows, want 21", len(got))
	}
}

func TestOpenRefusesOldServers(t *testing.T) {
	url := pgtest.Schema(pgtest.URL(t), t.TempDir())
	pgstore.TooOld(t)
	_, err := pgstore.Open(t.Context(), url, pgstore.Options{})
	if !errors.Is(err, store.ErrInvalid) || errors.Is(err, store.ErrUnavailable) || !strings.Contains(err.Error(), "99 is the oldest that works") {
		t.Errorf("a server that is too old: %v", err)
	}
}

// TestPanics: an error with which the server stops says nothing about a write.
func TestPanics(t *testing.T) {
	for severity, stops := range map[string]bool{"ERROR": false, "FATAL": true, "PANIC": true} {
		full := &pgconn.PgError{SeverityUnlocalized: severity, Code: "53100", Message: "could not write to file"}
		err := pgstore.Failed(full)
		if !errors.Is(err, store.ErrFull) || errors.Is(err, store.ErrUnavailable) != stops || strings.Contains(err.Error(), "may have happened") != stops {
			t.Errorf("%s on a full disk is %v", severity, err)
		}
		if pgstore.RefusedCommit(full) == stops {
			t.Errorf("%s at a commit: it has not happened: %v", severity, !stops)
		}
	}
	if err := pgstore.Failed(&pgconn.PgError{SeverityUnlocalized: "PANIC", Code: "XX000"}); !errors.Is(err, store.ErrUnavailable) {
		t.Errorf("a panic is %v", err)
	}
}

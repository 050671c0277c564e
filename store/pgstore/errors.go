package pgstore

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"strings"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/perdure/perdure/store"
)

// Reasons why a server cannot hold a store. Errors of Open and of later calls match
// them.
var (
	// ErrPassword: the server does not accept the user or the password. If it did
	// before, the error also matches store.ErrUnavailable.
	ErrPassword = errors.New("pgstore: the server does not let this user in")

	// ErrCertificate: a TLS connection is not possible, because one side does not trust
	// the other's certificate or the server has no TLS. If it was possible before, the
	// error also matches store.ErrUnavailable.
	ErrCertificate = errors.New("pgstore: the server and this program do not trust each other")

	// ErrNoDatabase: the server has no such database. If it had before, the error
	// also matches store.ErrUnavailable.
	ErrNoDatabase = errors.New("pgstore: no such database")

	// ErrReplica: the server accepts no writes. If it did before, the error also
	// matches store.ErrUnavailable.
	ErrReplica = errors.New("pgstore: the server accepts no writes")

	// ErrNoStore: the schema holds no store, and Options.Existing is set.
	ErrNoStore = errors.New("pgstore: there is no store")

	// ErrEncoding: the encoding of the database lacks some characters, so that the
	// views of a store could not show them.
	ErrEncoding = errors.New("pgstore: the database is not in UTF8")

	// ErrStarting: the server is starting, stopping or recovering, or a pooler
	// cannot reach it. It also matches store.ErrUnavailable.
	ErrStarting = fmt.Errorf("%w: pgstore: the server is not ready yet", store.ErrUnavailable)
)

// failed returns the error of a call that failed with err. If the server reported
// the error, nothing was written, unless it is going away. If it is, or the connection
// failed, the outcome of a write is unknown, and the error is store.ErrUnavailable.
func (s *Store) failed(doing string, err error) error {
	var pg *pgconn.PgError
	var connect *pgconn.ConnectError
	switch {
	case s.usable(context.Background()) != nil:
		return fmt.Errorf("pgstore: the store was closed during a call that may have happened: %w", err)
	case errors.Is(err, ErrReplica):
		return s.changed(err)
	case refused(err):
		return err
	case insecure(err) != "":
		return s.changed(fmt.Errorf("%w: %s: %w", ErrCertificate, insecure(err), err))
	case !errors.As(err, &pg) && errors.As(err, &connect):
		return fmt.Errorf("%w: pgstore: cannot connect to the server: %w", store.ErrUnavailable, err)
	case !errors.As(err, &pg):
		return fmt.Errorf("%w: pgstore: cannot %s the server; a write may have happened: %w", store.ErrUnavailable, doing, err)
	}
	if pg.SeverityUnlocalized == "PANIC" || severe(err) && pg.Code == "53100" {
		if pg.Code == "53100" {
			err = fmt.Errorf("%w: make room on its disk: %w", store.ErrFull, err)
		}
		return fmt.Errorf("%w: pgstore: the server has stopped; a write may have happened: %w", store.ErrUnavailable, err)
	}
	if away(err) {
		return fmt.Errorf("%w; try again: %w", ErrStarting, err)
	}
	switch pg.Code {
	case "28P01", "28000":
		return s.changed(fmt.Errorf("%w; give the right ones in the URL, PGUSER and PGPASSWORD, or look at pg_hba.conf: %w", ErrPassword, err))
	case "3D000":
		return s.changed(fmt.Errorf("%w; create it, as with createdb, or name another in the URL: %w", ErrNoDatabase, err))
	case "25006":
		return s.changed(fmt.Errorf("%w; if it is a read replica, connect to the primary, or name all servers in the URL and add target_session_attrs=read-write: %w", ErrReplica, err))
	case "53300":
		return fmt.Errorf("%w: pgstore: the server has no connection left; raise max_connections, lower pool_max_conns in the URL, or use a pooler: %w", store.ErrUnavailable, err)
	case "53100":
		return fmt.Errorf("%w: pgstore: the server's disk is full; nothing was written: %w", store.ErrFull, err)
	case "55P03", "57014":
		return fmt.Errorf("%w: pgstore: the server gave up waiting; nothing was written, so try again: %w", store.ErrBusy, err)
	case "XX001", "XX002":
		return &store.CorruptError{Where: "schema " + s.schema, Reason: pg.Error()}
	case "42501":
		return s.changed(s.denied(err))
	}
	return fmt.Errorf("pgstore: cannot %s schema %s: %w", doing, s.schema, err)
}

// denied is the error of a user without a right that is needed.
func (s *Store) denied(err error) error {
	if strings.Contains(err.Error(), "for database") {
		return fmt.Errorf("pgstore: the user lacks the right to create schema %s; create it for the user, grant CREATE on the database, or let a user who may open the store once: %w", s.schema, err)
	}
	return fmt.Errorf("pgstore: the user lacks a right on schema %s; grant it, or let its owner open the store once: %w", s.schema, err)
}

// insecure says why a connection failed, if each attempt failed for want of TLS that both
// sides trust. Without an sslmode, pgx asks for TLS and then tries without: what that
// attempt met is the reason.
func insecure(err error) (why string) {
	attempts := []error{err}
	var connect *pgconn.ConnectError
	if errors.As(err, &connect) {
		if all, ok := connect.Unwrap().(interface{ Unwrap() []error }); ok {
			attempts = all.Unwrap()
		}
	}
	for _, attempt := range attempts {
		if why = untrusted(attempt); why == "" {
			return ""
		}
	}
	return why
}

// untrusted is insecure for one attempt. A server without TLS has no error of its own
// in pgx.
func untrusted(err error) string {
	var verify *tls.CertificateVerificationError
	var remote *net.OpError
	switch {
	case errors.As(err, &verify):
		return "the certificate of the server is not trusted here; name its authority with sslrootcert=FILE in the URL, and the server as the certificate does"
	case errors.As(err, &remote) && remote.Op == "remote error":
		return "the server refuses the certificate of this program; name one that it trusts with sslcert=FILE and sslkey=FILE in the URL"
	case err != nil && strings.Contains(err.Error(), "server refused TLS connection"):
		return "the server has no TLS, but sslmode asks for it; set ssl = on there, or sslmode=disable in the URL"
	}
	return ""
}

// changed returns the error of a server that accepts no writes, or not this user, or
// has not the database. If it was otherwise when the store was opened, it or another
// server may be about to be so again.
func (s *Store) changed(err error) error {
	if s.pool == nil {
		return err
	}
	return fmt.Errorf("%w: %w", store.ErrUnavailable, err)
}

// away reports whether err is of a server that has gone away, or of a connection to
// it that has: what the server, or a pooler before it, says last, or no word at all.
func away(err error) bool {
	var pg *pgconn.PgError
	if !errors.As(err, &pg) {
		return err != nil
	}
	switch pg.Code {
	case "57P01", "57P02", "57P03", "57P05":
		return true
	case "55000": // the database accepts no connections for now, or a statement is out of place
		return strings.EqualFold(pg.Severity, "FATAL")
	}
	return strings.HasPrefix(pg.Code, "08")
}

// refused reports whether err is this package's own rather than PostgreSQL's.
func refused(err error) bool {
	for _, own := range []error{store.ErrForeign, store.ErrNewer, store.ErrWeak, store.ErrInvalid, store.ErrCorrupt, ErrNoStore, ErrEncoding} {
		if errors.Is(err, own) {
			return true
		}
	}
	return false
}

// code returns PostgreSQL's code for an error, "" if the server did not report it.
func code(err error) string {
	var pg *pgconn.PgError
	if errors.As(err, &pg) {
		return pg.Code
	}
	return ""
}

// severe reports whether the server has ended the session with an error, or itself.
func severe(err error) bool {
	var pg *pgconn.PgError
	return errors.As(err, &pg) && (pg.SeverityUnlocalized == "FATAL" || pg.SeverityUnlocalized == "PANIC")
}

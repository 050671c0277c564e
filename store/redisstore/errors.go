package redisstore

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/perdure/perdure/store"
)

// Reasons why a server cannot hold a store. Errors of Open and of later calls match
// them.
var (
	// ErrPassword: the server does not accept the user or the password.
	ErrPassword = errors.New("redisstore: the server does not let this user in")

	// ErrNoDatabase: the server has no database of this number.
	ErrNoDatabase = errors.New("redisstore: no such database")

	// ErrReplica: the server accepts no writes. If it did before, the error also
	// matches store.ErrUnavailable.
	ErrReplica = errors.New("redisstore: the server is a replica")

	// ErrNoStore: the server holds no store of this prefix, and Options.Existing
	// is set.
	ErrNoStore = errors.New("redisstore: there is no store")

	// ErrEvicts: the server may remove keys when its memory is full, and journals
	// with them.
	ErrEvicts = errors.New("redisstore: the server evicts keys")

	// ErrStarting: the server is loading its data. It also matches
	// store.ErrUnavailable.
	ErrStarting = fmt.Errorf("%w: redisstore: the server is not ready yet", store.ErrUnavailable)
)

// A refusal is an error of this package about a server. It has no Unwrap, since
// go-redis would take off the words around what it wraps.
type refusal struct{ err error }

func (r refusal) Error() string        { return r.err.Error() }
func (r refusal) Is(target error) bool { return errors.Is(r.err, target) }
func (r refusal) As(target any) bool   { return errors.As(r.err, target) }

func refusef(format string, args ...any) error { return refusal{fmt.Errorf(format, args...)} }

// replies says what the errors mean that a server replies. It has not executed the
// command then.
var replies = []struct {
	prefix string
	is     error
	means  string
}{
	{"NOAUTH", ErrPassword, "; give a user and a password in the URL"},
	{"WRONGPASS", ErrPassword, "; give the right ones in the URL"},
	{"NOPERM", ErrPassword, " to do all that a store needs; look at its ACL"},
	{"ERR The user executing the script", ErrPassword, " to do all that a store needs; look at its ACL"},
	{"ERR ACL failure in script", ErrPassword, " to do all that a store needs; look at its ACL"},
	{"ERR AUTH", ErrPassword, "; it has no password, or another one"},
	{"ERR DB index", ErrNoDatabase, "; name another in the path of the URL, or raise databases"},
	{"ERR SELECT", ErrNoDatabase, "; a cluster has only database 0"},
	{"ERR invalid DB", ErrNoDatabase, "; name another in the path of the URL"},
	{"LOADING", ErrStarting, "; try again"},
	{"OOM", store.ErrFull, ": redisstore: the server's memory is full; nothing was written; raise maxmemory"},
	{"BUSY", store.ErrBusy, ": redisstore: a script of another program has been running for long; nothing was written; wait, or end it with SCRIPT KILL"},
	{"NOREPLICAS", store.ErrUnavailable, ": redisstore: fewer replicas than min-replicas-to-write are connected; nothing was written"},
	{"CLUSTERDOWN", store.ErrUnavailable, ": redisstore: the cluster does not serve the store's slot; nothing was written"},
	{"TRYAGAIN", store.ErrUnavailable, ": redisstore: the store's slot is being moved to another node; nothing was written, so try again"},
	{"ASK", store.ErrUnavailable, ": redisstore: the store's slot is being moved to another node; nothing was written, so try again"},
	{"MOVED", store.ErrUnavailable, ": redisstore: the store's slot moves between nodes; nothing was written, so try again"},
	{"ERR max number of clients", store.ErrUnavailable, ": redisstore: the server has no connection left; raise maxclients, or lower pool_size in the URL"},
	{"NOSCRIPT", store.ErrUnavailable, ": redisstore: the server forgets scripts; nothing was written, so try again"},
}

// failed returns the error of a call that failed with err. If the server replied with
// the error, nothing was written. If the connection failed, the outcome of a write is
// unknown, and the error is store.ErrUnavailable.
func (s *Store) failed(doing string, err error) error {
	var own refusal
	var reply redis.Error
	var dial *net.OpError
	switch {
	case err == nil:
		return nil
	case s.usable(context.Background()) != nil:
		return fmt.Errorf("redisstore: the store was closed during a call that may have happened: %w", err)
	case errors.Is(err, ErrReplica):
		return s.demoted(err)
	case errors.As(err, &own):
		return own.err
	case errors.As(err, &reply):
		return s.refused(doing, reply)
	case insecure(err) != "" && !s.opened.Load(): // waiting does not help
		return fmt.Errorf("%w: redisstore: %s: %w", store.ErrInvalid, insecure(err), err)
	case insecure(err) != "":
		return fmt.Errorf("%w: redisstore: %s: %w", store.ErrUnavailable, insecure(err), err)
	case errors.As(err, &dial) && dial.Op == "dial":
		return fmt.Errorf("%w: redisstore: cannot connect to the server: %w", store.ErrUnavailable, err)
	}
	return fmt.Errorf("%w: redisstore: cannot %s the server; a write may have happened: %w", store.ErrUnavailable, doing, err)
}

// refused returns the error of a call that the server refused.
func (s *Store) refused(doing string, err redis.Error) error {
	said := err.Error()
	switch {
	case strings.HasPrefix(said, "READONLY"), strings.HasPrefix(said, "MASTERDOWN"):
		return s.demoted(fmt.Errorf("%w; connect to the primary, or name all servers in the URL with &addr=: %w", ErrReplica, err))
	case strings.HasPrefix(said, "MISCONF") && strings.Contains(said, "No space left"):
		return fmt.Errorf("%w: redisstore: the server's disk is full; nothing was written: %w", store.ErrFull, err)
	case strings.HasPrefix(said, "MISCONF"):
		return fmt.Errorf("%w: redisstore: the server cannot write to its disk; nothing was written; look at its log: %w", store.ErrUnavailable, err)
	case strings.HasPrefix(said, "WRONGTYPE"):
		return &store.CorruptError{Where: "keys " + s.keys.format[:strings.IndexByte(s.keys.format, '}')+1] + ":*", Reason: "another program has replaced a key of the store"}
	}
	for _, r := range replies {
		if strings.HasPrefix(said, r.prefix) {
			return fmt.Errorf("%w%s: %w", r.is, r.means, err)
		}
	}
	return fmt.Errorf("redisstore: cannot %s the server: %w", doing, err)
}

// demoted returns the error of a server that accepts no writes. If it did when the
// store was opened, another one may be about to.
func (s *Store) demoted(err error) error {
	if !s.opened.Load() {
		return err
	}
	return fmt.Errorf("%w: %w", store.ErrUnavailable, err)
}

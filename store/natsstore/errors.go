package natsstore

import (
	"context"
	"errors"
	"fmt"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/perdure/perdure/store"
)

// Reasons why a server cannot hold a store. Errors of Open and of later calls match
// them.
var (
	// ErrLogin: the server does not accept the credentials.
	ErrLogin = errors.New("natsstore: the server does not let this user in")

	// ErrCertificate: a TLS connection is not possible, because one side does not
	// trust the other's certificate or the server has none.
	ErrCertificate = errors.New("natsstore: the server and this program do not trust each other")

	// ErrRights: the user may not use a subject that the store needs.
	ErrRights = errors.New("natsstore: the user has too few permissions")

	// ErrNoJetStream: the server or the account has no JetStream.
	ErrNoJetStream = errors.New("natsstore: there is no JetStream")

	// ErrSettings: the stream has settings that would lose entries, or lacks
	// settings that a store needs.
	ErrSettings = errors.New("natsstore: the stream cannot hold a store")

	// ErrNoStore: there is no stream, and Options.Existing is set.
	ErrNoStore = errors.New("natsstore: there is no store")

	// ErrPayload: the server's max_payload is too small for an entry.
	ErrPayload = errors.New("natsstore: max_payload is too small")
)

// The server's codes of errors, see its errors.json.
const (
	codeAccountLimit      = 10002
	codeClusterNotAvail   = 10008
	codeNotLeader         = 10009
	codeResources         = 10023
	codeMaxStreams        = 10027
	codeMemory            = 10028
	codeNoMessage         = 10037
	codeNotEnabledAccount = 10039
	codeStorage           = 10047
	codeMessageTooLarge   = 10054
	codeOverlap           = 10065
	codeDeleteFailed      = 10057
	codeReplicas          = 10074
	codeNotEnabled        = 10076
	codeStoreFailed       = 10077
	codeWrongLast         = 10071
	codeNotReady          = 10163
	codeWrongLastConstant = 10164
	codeNoPeers           = 10005
	codeIncomplete        = 10176
	codeTooManyBatches    = 10210
)

// refusal is a definite no to a conditional write: of the server, or because there was
// no server that led the stream.
type refusal struct {
	api  *jetstream.APIError
	none error // nobody took the write
}

func (r *refusal) Error() string {
	if r.none != nil {
		return r.none.Error()
	}
	return r.api.Error()
}

// final returns the error of a write that was refused for too long although everything
// was as it expected.
func (r *refusal) final() error {
	if r.none != nil {
		return r.none
	}
	switch r.api.ErrorCode {
	case codeIncomplete:
		return fmt.Errorf("%w: natsstore: the server does not keep the messages of a batch; nothing was written; look at its log and at the space on its disk: %w", store.ErrBusy, r.api)
	case codeTooManyBatches, codeNotReady:
		return fmt.Errorf("%w: natsstore: the server has too many open batches; nothing was written, so try again: %w", store.ErrBusy, r.api)
	}
	return store.Conflictf("the server refuses the write although nothing has changed; try again (%v)", r.api)
}

// rejected returns the error of a write that the server answered with an error.
// Nothing was written then, except perhaps by a server that lost the lead.
func (s *Store) rejected(api *jetstream.APIError) error {
	switch api.ErrorCode {
	case codeWrongLast, codeWrongLastConstant, codeNotReady, codeIncomplete, codeTooManyBatches:
		return &refusal{api: api}
	}
	return s.failed(context.Background(), "write to", api)
}

// failed returns the error of a call that failed with err, which may be nil. If no
// answer came, the outcome of a write is unknown, and the error is store.ErrUnavailable.
func (s *Store) failed(ctx context.Context, doing string, err error) error {
	switch {
	case err == nil, errors.Is(err, jetstream.ErrMsgNotFound):
		return err
	case ctx.Err() != nil:
		return ctx.Err()
	case s.life.Err() != nil:
		return fmt.Errorf("natsstore: the store was closed during a call that may have happened: %w", err)
	}
	if api, ok := errors.AsType[*jetstream.APIError](err); ok {
		return s.answered(doing, api)
	}
	switch {
	case errors.Is(err, nats.ErrAuthorization), errors.Is(err, nats.ErrAuthExpired), errors.Is(err, nats.ErrAuthRevoked), errors.Is(err, nats.ErrAccountAuthExpired):
		return fmt.Errorf("%w; give the right user, password, token or creds in the URL: %w", ErrLogin, err)
	case errors.Is(err, nats.ErrPermissionViolation):
		return fmt.Errorf("%w: %w", ErrRights, err)
	case errors.Is(err, nats.ErrNoResponders), errors.Is(err, jetstream.ErrNoStreamResponse):
		return fmt.Errorf("%w: natsstore: no server answers for stream %s: it has no leader, or JetStream is off; look at nats stream info: %w", store.ErrUnavailable, s.name, err)
	case errors.Is(err, nats.ErrMaxPayload):
		return fmt.Errorf("%w: %w", ErrPayload, err)
	}
	hint := ""
	if last := s.asynchronous(); last != nil {
		hint = fmt.Sprintf(" (the server said: %v)", last)
	}
	return fmt.Errorf("%w: natsstore: cannot %s the server, or too few replicas of stream %s are up; a write may have happened: %w%s", store.ErrUnavailable, doing, s.name, err, hint)
}

// answered returns the error for an answer of the server.
func (s *Store) answered(doing string, api *jetstream.APIError) error {
	switch api.ErrorCode {
	case codeAccountLimit, codeResources, codeStorage, codeMemory, codeMaxStreams:
		return fmt.Errorf("%w: natsstore: the account or the server has no space left for stream %s; nothing was written; raise its JetStream limits: %w", store.ErrFull, s.name, api)
	case codeStoreFailed:
		return fmt.Errorf("%w: natsstore: the server could not store the message; look at its log, and at max_bytes and max_msgs of stream %s; nothing was written: %w", store.ErrFull, s.name, api)
	case codeNotEnabled, codeNotEnabledAccount:
		return fmt.Errorf("%w; start the server with -js and enable JetStream for the account: %w", ErrNoJetStream, api)
	case codeClusterNotAvail, codeNotLeader, codeNoPeers:
		return fmt.Errorf("%w: natsstore: the cluster has no leader for stream %s, or too few servers for its replicas: %w", store.ErrUnavailable, s.name, api)
	case codeReplicas:
		return fmt.Errorf("%w: natsstore: the server is not part of a cluster with that many replicas; use replicas=1, or a cluster: %w", store.ErrInvalid, api)
	case codeOverlap:
		return fmt.Errorf("%w: natsstore: another stream has subjects of this store; name another prefix than %s with prefix= in the URL: %w", store.ErrInvalid, s.prefix, api)
	case codeMessageTooLarge:
		return fmt.Errorf("%w: max_msg_size of stream %s: %w", ErrSettings, s.name, api)
	}
	if errors.Is(api, jetstream.ErrStreamNotFound) {
		return fmt.Errorf("%w: natsstore: stream %s is gone: %w", store.ErrUnavailable, s.name, api)
	}
	return fmt.Errorf("%w: natsstore: cannot %s stream %s: %w", store.ErrUnavailable, doing, s.name, api)
}

// where names a place for an error.
func (s *Store) where(at uint64) string { return fmt.Sprintf("stream %s, message %d", s.name, at) }

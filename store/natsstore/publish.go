package natsstore

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/perdure/perdure/store"
)

// message returns a message that the server stores only if its subject ends at the
// given sequence of the stream; 0 means that the subject has no message.
func message(subject string, at uint64, data []byte) *nats.Msg {
	return &nats.Msg{Subject: subject, Data: data, Header: nats.Header{
		jetstream.ExpectedLastSubjSeqHeader: {strconv.FormatUint(at, 10)},
	}}
}

// rollup makes a message remove the earlier ones of its subject.
func rollup(m *nats.Msg) *nats.Msg {
	m.Header.Set(jetstream.MsgRollup, jetstream.MsgRollupSubject)
	return m
}

// The headers of an atomic batch, which the client has no functions for.
const (
	headerBatch  = "Nats-Batch-Id"
	headerNumber = "Nats-Batch-Sequence"
	headerCommit = "Nats-Batch-Commit"
)

// publish stores messages in one commit and returns the sequence of the first one. It
// sends them once: if the answer is lost, the outcome is unknown. A *refusal means that
// nothing was stored.
func (s *Store) publish(ctx context.Context, messages []*nats.Msg) (uint64, error) {
	call, cancel := s.call(ctx)
	defer cancel()
	var reply *nats.Msg
	var err error
	if len(messages) == 1 {
		reply, err = s.nc.RequestMsgWithContext(call, messages[0])
	} else {
		reply, err = s.batch(call, messages, false)
		if err == nil && incomplete(reply) { // nothing was stored; ask for the reason
			reply, err = s.batch(call, messages, true)
		}
	}
	if err != nil {
		if ctx.Err() != nil {
			return 0, fmt.Errorf("natsstore: the write was sent and may have happened: %w", ctx.Err())
		}
		failed := s.failed(ctx, "write to", err)
		if errors.Is(err, nats.ErrNoResponders) { // a leader is being elected
			return 0, &refusal{none: failed}
		}
		return 0, failed
	}
	var ack struct {
		jetstream.PubAck
		Count uint64              `json:"count"`
		Error *jetstream.APIError `json:"error"`
	}
	switch err := json.Unmarshal(reply.Data, &ack); {
	case err != nil:
		return 0, s.failed(ctx, "understand", fmt.Errorf("the answer to a write is not JSON: %w", err))
	case ack.Error != nil && len(messages) > 1 && s.cuts(ack.Error):
		return 0, fmt.Errorf("%w: natsstore: the server may have stored a part of a batch; limit the space by max_bytes of the stream rather than of the account or the server: %w", store.ErrUnavailable, s.rejected(ack.Error))
	case ack.Error != nil:
		return 0, s.rejected(ack.Error)
	case ack.Stream != s.name:
		return 0, s.failed(ctx, "write to", fmt.Errorf("stream %q stored the message", ack.Stream))
	case ack.Sequence < uint64(len(messages)) || len(messages) > 1 && ack.Count != uint64(len(messages)):
		return 0, s.failed(ctx, "write to", errors.New("the answer to a batch is not its own"))
	}
	return ack.Sequence - uint64(len(messages)) + 1, nil
}

// incomplete reports whether the server has refused a batch because it lacks one of the
// messages. It has refused that message for a reason that nobody was told.
func incomplete(reply *nats.Msg) bool {
	var answer struct {
		Error *jetstream.APIError `json:"error"`
	}
	return json.Unmarshal(reply.Data, &answer) == nil && answer.Error != nil && answer.Error.ErrorCode == codeIncomplete
}

// cuts reports whether the server may have stored the first messages of a batch that it
// refused with an error. A server that alone has the stream compares the limits of its
// own and of the account with each message while it stores a batch.
func (s *Store) cuts(api *jetstream.APIError) bool {
	return (api.ErrorCode == codeAccountLimit || api.ErrorCode == codeResources) && s.stream.CachedInfo().Config.Replicas <= 1
}

// batch sends an atomic batch and waits for the answer to its last message, or to the
// first that is refused if the server is to answer each of them. The messages of one
// batch follow each other on the connection, so that the server has few open batches:
// it allows only 50 for a stream.
func (s *Store) batch(ctx context.Context, messages []*nats.Msg, each bool) (*nats.Msg, error) {
	id := rand.Text()
	subject, wait := s.answers.expect(id)
	for i, m := range messages {
		m.Header.Set(headerBatch, id)
		m.Header.Set(headerNumber, strconv.Itoa(i+1))
		if each {
			m.Reply = subject
		}
	}
	last := messages[len(messages)-1]
	last.Header.Set(headerCommit, "1")
	last.Reply = subject
	s.batches.Lock()
	for _, m := range messages {
		if err := s.nc.PublishMsg(m); err != nil {
			s.batches.Unlock()
			s.answers.forget(subject)
			return nil, err
		}
	}
	s.batches.Unlock()
	return wait(ctx)
}

// get asks the leader of the stream for a message.
func (s *Store) get(ctx context.Context, at uint64, opts ...jetstream.GetMsgOpt) (m *jetstream.RawStreamMsg, err error) {
	err = s.ask(ctx, func(call context.Context) error {
		m, err = s.stream.GetMsg(call, at, opts...)
		return err
	})
	return m, s.failed(ctx, "read from", err)
}

// getLast asks the leader of the stream for the last message of a subject.
func (s *Store) getLast(ctx context.Context, subject string) (m *jetstream.RawStreamMsg, err error) {
	err = s.ask(ctx, func(call context.Context) error {
		m, err = s.stream.GetLastMsgForSubject(call, subject)
		return err
	})
	return m, s.failed(ctx, "read from", err)
}

// ask reads, again and again while a leader is being elected, for as long as a call may
// take.
func (s *Store) ask(ctx context.Context, read func(context.Context) error) error {
	call, cancel := s.call(ctx)
	defer cancel()
	for {
		err := read(call)
		if !errors.Is(err, nats.ErrNoResponders) && !errors.Is(err, jetstream.ErrNoStreamResponse) {
			return err
		}
		select {
		case <-call.Done():
			return err
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// erase overwrites the messages of a subject before the given sequence.
func (s *Store) erase(ctx context.Context, subject string, before uint64) error {
	for next := uint64(1); ; {
		m, err := s.get(ctx, next, jetstream.WithGetMsgSubject(subject))
		if errors.Is(err, jetstream.ErrMsgNotFound) || err == nil && m.Sequence >= before {
			return nil
		}
		if err == nil {
			call, cancel := s.call(ctx)
			err = s.stream.SecureDeleteMsg(call, m.Sequence)
			cancel()
			if api, ok := errors.AsType[*jetstream.APIError](err); ok && (api.ErrorCode == codeNoMessage || api.ErrorCode == codeDeleteFailed) {
				if _, err = s.get(ctx, m.Sequence); errors.Is(err, jetstream.ErrMsgNotFound) {
					err = nil // another Drop was faster
				}
			}
			err = s.failed(ctx, "erase a message of", err)
		}
		if err != nil {
			return fmt.Errorf("natsstore: the journal is dropped, but some of its bytes may be left; drop it again: %w", err)
		}
		next = m.Sequence + 1
	}
}

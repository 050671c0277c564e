package natsstore

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strings"

	"github.com/nats-io/nats.go"
)

// rights returns ErrRights if the user may not use a subject that the store needs. A
// server says so on the connection and does not answer, so that a request would wait in
// vain.
func (s *Store) rights(ctx context.Context) error {
	topic := s.topic("rights")
	publish := []string{
		s.api("STREAM.INFO"), s.api("STREAM.MSG.GET"), s.api("STREAM.MSG.DELETE"),
		s.subject("j", "rights"), s.subject("d", "rights"), s.subject("c", "rights"), s.prefix + ".n", topic,
	}
	subscribe := []string{s.nc.NewInbox() + ".*", s.prefix + ".n", topic}
	if err := s.denied(ctx, publish, subscribe); err == nil || !errors.Is(err, nats.ErrPermissionViolation) {
		return err
	}
	var missing []string // the server says only the last one
	for _, subject := range publish {
		if err := s.denied(ctx, []string{subject}, nil); err != nil {
			missing = append(missing, "publish to "+subject)
		}
	}
	for _, subject := range subscribe {
		if err := s.denied(ctx, nil, []string{subject}); err != nil {
			missing = append(missing, "subscribe to "+subject)
		}
	}
	if ctx.Err() != nil || len(missing) == 0 { // somebody else's violation
		return ctx.Err()
	}
	return fmt.Errorf("%w: it may not %s; let it publish to %s.> and $JS.API.>, and subscribe to %[3]s.> and _INBOX.>", ErrRights, strings.Join(missing, ", or "), s.prefix)
}

func (s *Store) api(request string) string { return "$JS.API." + request + "." + s.name }

// denied publishes to and subscribes to subjects, and returns the violation that the
// server answers with. Nothing is stored: a store's subject does not end where the
// messages expect it.
func (s *Store) denied(ctx context.Context, publish, subscribe []string) error {
	call, cancel := s.call(ctx)
	defer cancel()
	before := s.nc.LastError()
	for _, subject := range publish {
		if err := s.nc.PublishMsg(message(subject, math.MaxInt64, nil)); err != nil {
			return s.failed(ctx, "write to", err)
		}
	}
	for _, subject := range subscribe {
		sub, err := s.nc.SubscribeSync(subject)
		if err != nil {
			return s.failed(ctx, "subscribe at", err)
		}
		defer sub.Unsubscribe()
	}
	if err := s.nc.FlushWithContext(call); err != nil { // the server answers in order
		return s.failed(ctx, "write to", err)
	}
	if err := s.nc.LastError(); err != before && errors.Is(err, nats.ErrPermissionViolation) {
		return err
	}
	return nil
}

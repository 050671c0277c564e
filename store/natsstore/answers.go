package natsstore

import (
	"context"
	"strings"
	"sync"

	"github.com/nats-io/nats.go"
)

// answers receives the answers to batches on one subscription. The client's own
// requests send one message each, and a subscription for each batch would have to be
// known to all servers first.
type answers struct {
	inbox   string
	sub     *nats.Subscription
	mu      sync.Mutex
	waiting map[string]chan *nats.Msg // by subject
}

// listen subscribes.
func (a *answers) listen(nc *nats.Conn) (err error) {
	a.inbox, a.waiting = nc.NewInbox(), map[string]chan *nats.Msg{}
	a.sub, err = nc.Subscribe(a.inbox+".*", func(m *nats.Msg) {
		if len(m.Data) == 0 && len(m.Header) == 0 { // a message of a batch has arrived
			return
		}
		a.mu.Lock()
		defer a.mu.Unlock()
		if answer := a.waiting[m.Subject]; answer != nil {
			answer <- m // has room for one, and gets no other
			delete(a.waiting, m.Subject)
		}
	})
	return err
}

// expect returns the subject for the answer to the batch with an id, and a function
// that waits for it.
func (a *answers) expect(id string) (subject string, wait func(context.Context) (*nats.Msg, error)) {
	subject = a.inbox + "." + id
	answer := make(chan *nats.Msg, 1)
	a.mu.Lock()
	a.waiting[subject] = answer
	a.mu.Unlock()
	return subject, func(ctx context.Context) (*nats.Msg, error) {
		select {
		case m := <-answer:
			if len(m.Data) == 0 && strings.HasPrefix(m.Header.Get("Status"), "503") {
				return nil, nats.ErrNoResponders
			}
			return m, nil
		case <-ctx.Done():
			a.forget(subject)
			return nil, ctx.Err()
		}
	}
}

// forget gives an answer up.
func (a *answers) forget(subject string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.waiting, subject)
}

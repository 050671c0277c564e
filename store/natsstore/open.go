package natsstore

import (
	"context"
	"errors"
	"fmt"
	"os"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/perdure/perdure/store"
)

func init() {
	open := func(ctx context.Context, url string) (store.Store, error) { return Open(ctx, url, Options{}) }
	store.Register("nats", open)
	store.Register("tls", open)
}

// Options configures Open and New. Parameters in the URL take precedence.
type Options struct {
	// Stream is the name of the store's stream, ?stream= in the URL; "" means
	// perdure. An account can hold several stores.
	Stream string

	// Prefix is the first token of the store's subjects, ?prefix= in the URL; ""
	// means the name of the stream.
	Prefix string

	// Replicas is how many servers of a cluster keep the stream, ?replicas= in the
	// URL; 0 means 1 for a new stream and whatever it has for an existing one.
	Replicas int

	// Memory makes a new stream keep its messages in memory, ?storage=memory in the
	// URL.
	Memory bool

	// Existing makes Open return ErrNoStore instead of creating a stream,
	// ?existing=true in the URL.
	Existing bool

	// SyncAlways says that all servers run with sync_interval: always. It is for
	// programs that embed the servers and know. Others set System.
	SyncAlways bool

	// System is a URL with credentials of the system account, ?system= in the URL.
	// With it Open asks the servers for their sync_interval.
	System string

	// Timeout bounds each request: after it a write may or may not have taken
	// effect. 0 means 5 seconds.
	Timeout time.Duration

	// Connection has further options of the connection that Open makes, such as a
	// dialer.
	Connection []nats.Option
}

// Store is a handle on a stream.
type Store struct {
	*store.Hub
	name       string // of the stream
	prefix     string
	timeout    time.Duration
	durability store.Durability
	weakness   string
	nc         *nats.Conn
	owned      bool // whether Close closes nc
	stream     jetstream.Stream
	heads      heads
	news       news
	batches    sync.Mutex // held while the messages of a batch are sent
	link       link
	answers    answers     // to batches
	noAccount  atomic.Bool // the account may not be asked about

	mu     sync.Mutex
	closed bool
	writes sync.WaitGroup  // in progress
	life   context.Context // ends with Close
	end    context.CancelFunc
	close  sync.Once
}

var (
	_ store.Store   = (*Store)(nil)
	_ store.Watcher = (*Store)(nil)
	_ store.Caster  = (*Store)(nil)
	_ store.Durable = (*Store)(nil)
	_ store.Weak    = (*Store)(nil)
	_ store.Warner  = (*Store)(nil)
	_ store.Batcher = (*Store)(nil)
)

var token = regexp.MustCompile(`^[a-zA-Z0-9_-]{1,48}$`)

// Open opens the store in a stream of the servers at url, nats://user:password@host:port,
// or tls:// for TLS, and creates the stream if it does not exist. Several servers are
// separated by commas.
func Open(ctx context.Context, url string, o Options) (*Store, error) {
	servers, o, opts, err := parse(url, o)
	if err != nil {
		return nil, err
	}
	nc, err := connect(ctx, servers, append(append(opts, nats.ReconnectBufSize(-1), nats.Name(fmt.Sprintf("perdure %s %d", o.Stream, os.Getpid()))), o.Connection...)...)
	if err != nil {
		return nil, err
	}
	s, err := New(ctx, nc, o)
	if err != nil {
		nc.Close()
		return nil, err
	}
	s.owned = true
	return s, nil
}

// New opens the store in a stream of the servers that nc is connected to. The program
// closes nc after the store. Like that of Open, the connection should not buffer
// messages while it is lost: see nats.ReconnectBufSize.
func New(ctx context.Context, nc *nats.Conn, o Options) (*Store, error) {
	o, err := defaults(o)
	if err != nil {
		return nil, err
	}
	s := &Store{Hub: store.NewHub(), name: o.Stream, prefix: o.Prefix, timeout: o.Timeout, nc: nc}
	s.life, s.end = context.WithCancel(context.Background())
	if err := s.prepare(ctx, o); err != nil {
		s.end()
		return nil, err
	}
	if err := s.answers.listen(nc); err != nil {
		s.end()
		return nil, s.failed(ctx, "subscribe at", err)
	}
	s.link.follow(s.life, nc)
	s.news.init(s)
	return s, nil
}

// defaults fills in what is not set and checks the rest.
func defaults(o Options) (Options, error) {
	if o.Stream == "" {
		o.Stream = "perdure"
	}
	if o.Prefix == "" {
		o.Prefix = o.Stream
	}
	if o.Timeout <= 0 {
		o.Timeout = 5 * time.Second
	}
	for what, name := range map[string]string{"stream": o.Stream, "prefix": o.Prefix} {
		if !token.MatchString(name) {
			return o, fmt.Errorf("%w: natsstore: %q cannot be the name of a %s here; use up to 48 letters, digits, dashes and underscores", store.ErrInvalid, name, what)
		}
	}
	if o.Replicas < 0 || o.Replicas > 5 {
		return o, fmt.Errorf("%w: natsstore: %d replicas; use 1, 3 or 5", store.ErrInvalid, o.Replicas)
	}
	return o, nil
}

// Durability implements store.Durable.
func (s *Store) Durability() store.Durability { return s.durability }

// Weakness implements store.Weak.
func (s *Store) Weakness() string { return s.weakness }

// Close implements store.Store. Writes that were sent to the server finish; others
// return ErrClosed.
func (s *Store) Close() error {
	s.close.Do(func() {
		s.mu.Lock()
		s.closed = true
		s.mu.Unlock()
		s.Stop()
		s.writes.Wait()
		s.end()
		s.news.end()
		if s.owned {
			s.nc.Close()
		} else {
			_ = s.answers.sub.Unsubscribe()
			_ = s.nc.FlushTimeout(s.timeout)
		}
	})
	return nil
}

// begin starts a write, for which Close waits, or returns false.
func (s *Store) begin() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.closed {
		s.writes.Add(1)
	}
	return !s.closed
}

// usable returns an error if the store is closed or ctx has ended.
func (s *Store) usable(ctx context.Context) error {
	s.mu.Lock()
	closed := s.closed
	s.mu.Unlock()
	if closed {
		return store.ErrClosed
	}
	return ctx.Err()
}

func (s *Store) subject(kind, name string) string { return s.prefix + "." + kind + "." + encode(name) }

// asynchronous returns the last error that the connection met outside of a call, other
// than the answer to a question that a store need not be allowed to ask.
func (s *Store) asynchronous() error {
	if s.nc == nil {
		return nil
	}
	err := s.nc.LastError()
	if errors.Is(err, nats.ErrPermissionViolation) && strings.Contains(err.Error(), accountInfo) {
		return nil
	}
	return err
}

package redisstore

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"

	"github.com/perdure/perdure/store"
)

func init() {
	open := func(ctx context.Context, url string) (store.Store, error) { return Open(ctx, url, Options{}) }
	store.Register("redis", open)
	store.Register("rediss", open)
	redis.SetLogger(silence{}) // calls return what it would print
}

// silence is the logger of go-redis.
type silence struct{}

func (silence) Printf(context.Context, string, ...any) {}

// Options configures Open. Parameters in the URL take precedence.
type Options struct {
	// Prefix is the name of the store, ?prefix= in the URL; "" means perdure. All
	// its keys begin with it. A server can hold several stores.
	Prefix string

	// Existing makes Open return ErrNoStore instead of creating a store,
	// ?existing=true in the URL.
	Existing bool

	// Timeout bounds each call of the server: after it the connection is closed,
	// and a write may or may not have taken effect. 0 means 15 seconds.
	Timeout time.Duration
}

// Store is a handle on a store.
type Store struct {
	*store.Hub
	prefix  string
	keys    keys
	timeout time.Duration
	link    *link
	writer  *writer
	news    *news

	opened     atomic.Bool // from then on these do not change:
	durability store.Durability
	weakness   string
	aof        bool   // the server has an append-only file
	format     string // the content of keys.format

	rewrites *rewrites

	life  context.Context // ends with Close
	end   context.CancelFunc
	close sync.Once
}

var (
	_ store.Store   = (*Store)(nil)
	_ store.Watcher = (*Store)(nil)
	_ store.Caster  = (*Store)(nil)
	_ store.Durable = (*Store)(nil)
	_ store.Weak    = (*Store)(nil)
	_ store.Batcher = (*Store)(nil)
)

// maxConns limits the connections of a handle, unless the URL sets pool_size. Writes
// use at most maxFlights of them, however many writes there are.
const maxConns = 8

var prefixName = regexp.MustCompile(`^[a-zA-Z0-9_.:-]{1,48}$`)

// Open opens the store at url, redis://user:password@host:port/database or rediss://…
// for TLS, and creates it if it does not exist.
func Open(ctx context.Context, url string, o Options) (*Store, error) {
	config, addresses, o, err := parse(url, o)
	if err != nil {
		return nil, err
	}
	s := &Store{Hub: store.NewHub(), prefix: o.Prefix, keys: newKeys(o.Prefix), timeout: o.Timeout}
	s.life, s.end = context.WithCancel(context.Background())
	config.OnConnect = s.admit
	s.link = newLink(config, addresses)
	bounded, cancel := context.WithTimeout(ctx, s.timeout)
	defer cancel()
	if err := s.settle(bounded, o.Existing); err != nil {
		s.link.close()
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		if errors.Is(err, store.ErrUnavailable) {
			if wrong := wrongScheme(ctx, config.Addr, config.TLSConfig); wrong != nil {
				err = wrong
			}
		}
		return nil, err
	}
	s.opened.Store(true)
	s.writer = newWriter(s)
	s.news = newNews(s)
	s.rewrites = newRewrites(s)
	return s, nil
}

// parse reads a URL and moves the parameters that go-redis does not know to o.
func parse(text string, o Options) (*redis.Options, []string, Options, error) {
	u, err := url.Parse(text)
	if err != nil || u.Opaque != "" || u.Host == "" {
		return nil, nil, o, unreadable("")
	}
	q := u.Query()
	if q.Has("prefix") {
		o.Prefix = q.Get("prefix")
	}
	if q.Has("existing") {
		if o.Existing, err = strconv.ParseBool(q.Get("existing")); err != nil {
			return nil, nil, o, fmt.Errorf("%w: redisstore: existing=%s in the URL; use true or false", store.ErrInvalid, q.Get("existing"))
		}
	}
	if o.Prefix == "" {
		o.Prefix = "perdure"
	}
	if o.Timeout <= 0 {
		o.Timeout = 15 * time.Second
	}
	if !prefixName.MatchString(o.Prefix) {
		return nil, nil, o, fmt.Errorf("%w: redisstore: %q cannot be a prefix; use up to 48 letters, digits and the characters _ . : -", store.ErrInvalid, o.Prefix)
	}
	others, files := q["addr"], u.Query()
	for _, param := range []string{"prefix", "existing", "addr", "ca", "cert", "key", "max_retries", "min_retry_backoff", "max_retry_backoff"} {
		q.Del(param)
	}
	u.RawQuery = q.Encode()
	config, err := redis.ParseURL(u.String())
	if err != nil {
		return nil, nil, o, unreadable(": " + strings.TrimPrefix(err.Error(), "redis: "))
	}
	if err := secure(config.TLSConfig, files); err != nil {
		return nil, nil, o, err
	}
	// A write that is sent twice would conflict with itself.
	config.MaxRetries = -1
	config.DialerRetries = 1
	config.ContextTimeoutEnabled = true
	config.PipelinePoolSize = -1
	config.DisableIdentity = true
	config.MaintNotificationsConfig = &maintnotifications.Config{Mode: maintnotifications.ModeDisabled}
	if config.PoolSize <= 0 {
		config.PoolSize = maxConns
	}
	config.MaxActiveConns = config.PoolSize
	config.ReadTimeout, config.WriteTimeout, config.PoolTimeout = o.Timeout, o.Timeout, o.Timeout
	if config.DialTimeout <= 0 {
		config.DialTimeout = min(5*time.Second, o.Timeout)
	}
	if config.ClientName == "" {
		config.ClientName = "perdure"
	}
	addresses := []string{config.Addr}
	for _, address := range others {
		if _, _, err := net.SplitHostPort(address); err != nil {
			address = net.JoinHostPort(address, "6379")
		}
		addresses = append(addresses, address)
	}
	return config, addresses, o, nil
}

// unreadable returns the error of a URL that cannot be used. It has nothing of the
// URL in it but what go-redis says of a parameter, since passwords may be anywhere
// there.
func unreadable(why string) error {
	return fmt.Errorf("%w: redisstore: the URL of the server cannot be read; write it like redis://user:password@host:6379/0%s", store.ErrInvalid, why)
}

// Durability implements store.Durable.
func (s *Store) Durability() store.Durability { return s.durability }

// Weakness implements store.Weak.
func (s *Store) Weakness() string { return s.weakness }

// Close implements store.Store. Writes that were sent to the server finish; others
// return ErrClosed.
func (s *Store) Close() error {
	s.close.Do(func() {
		s.Stop()
		s.end()
		s.writer.close()
		s.news.ended.Wait()
		s.rewrites.ended.Wait()
		s.link.close()
	})
	return nil
}

// usable returns an error if the store is closed or ctx has ended.
func (s *Store) usable(ctx context.Context) error {
	if s.life.Err() != nil {
		return store.ErrClosed
	}
	return ctx.Err()
}

// run executes a script. Its first key and argument, by which it knows the store, are
// added to names and args.
func (s *Store) run(ctx context.Context, doing string, script *redis.Script, names []string, args ...any) (reply, error) {
	var answer []any
	err := s.call(ctx, doing, func(ctx context.Context, c *redis.Client) (err error) {
		answer, err = script.Run(ctx, c, append([]string{s.keys.format}, names...), append([]any{s.format}, args...)...).Slice()
		return err
	})
	if err != nil {
		return nil, err // the call may go on
	}
	r := reply(answer)
	if err := s.refusedBy(r); err != nil {
		return nil, err
	}
	if !r.is(made) && !r.is(wasDropped) && !r.is(wasLost) && !r.is(isNone) {
		return nil, fmt.Errorf("redisstore: the server answered a script with %v", answer)
	}
	return r, nil
}

// call makes a call of the server. It returns when ctx ends, even if the server has
// not answered, so what f sets is valid only if err is nil.
func (s *Store) call(ctx context.Context, doing string, f func(context.Context, *redis.Client) error) error {
	if err := s.usable(ctx); err != nil {
		return err
	}
	bounded, cancel := context.WithTimeout(context.WithoutCancel(ctx), s.timeout)
	done := make(chan error, 1)
	go func() {
		defer cancel()
		done <- s.link.do(bounded, f)
	}()
	select {
	case err := <-done:
		return s.failed(doing, err)
	case <-ctx.Done():
		return ctx.Err()
	}
}

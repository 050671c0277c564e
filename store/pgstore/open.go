package pgstore

import (
	"context"
	"fmt"
	"net/url"
	"os"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/perdure/perdure/store"
)

func init() {
	open := func(ctx context.Context, url string) (store.Store, error) { return Open(ctx, url, Options{}) }
	store.Register("postgres", open)
	store.Register("postgresql", open)
}

// Options configures Open. Parameters in the URL take precedence.
type Options struct {
	// Schema is the name of the store's schema, ?schema= in the URL; "" means
	// perdure. A database can hold several stores.
	Schema string

	// Direct is the URL at which a handle listens for the writes of others if its
	// main URL goes through a pooler such as PgBouncer, ?direct= in the URL.
	// Without it, such a handle polls.
	Direct string

	// Existing makes Open return ErrNoStore instead of creating a store,
	// ?existing=true in the URL.
	Existing bool

	// Timeout bounds each statement: after it the connection is closed, and a
	// write may or may not have taken effect. 0 means 15 seconds.
	Timeout time.Duration
}

// Store is a handle on a schema of a database.
type Store struct {
	*store.Hub
	schema     string
	existing   bool
	timeout    time.Duration
	durability store.Durability
	weakness   string // what makes it less than Power
	pool       *pgxpool.Pool
	pooled     bool // a pooler is between, and statements are planned each time
	gate       gate
	writer     *writer
	news       *news

	idle struct { // connections for transactions
		sync.Mutex
		conns []*pgx.Conn
	}

	sqlAppend, sqlAppendSoon, sqlWrite, sqlWriteSoon, sqlRead, sqlJournals, sqlGet, sqlList, sqlCount string

	sqlLone [16]string // by the kinds of writes, see lone.go

	life  context.Context // ends with Close
	end   context.CancelFunc
	close sync.Once
}

var (
	_ store.Store   = (*Store)(nil)
	_ store.Watcher = (*Store)(nil)
	_ store.Caster  = (*Store)(nil)

	_ store.Attentive = (*Store)(nil)
	_ store.Weak      = (*Store)(nil)

	_ store.Durable = (*Store)(nil)
	_ store.Batcher = (*Store)(nil)

	_ store.Unsynced = (*Store)(nil)
	_ store.Warner   = (*Store)(nil)
)

// maxConns limits the connections of a handle, unless the URL sets pool_max_conns.
// Writes use at most two of them, however many writes there are.
const maxConns = 8

// connectTimeout is how long connecting may take, unless the URL says otherwise with
// connect_timeout: one that gets no answer keeps others from a connection that would.
const connectTimeout = 10 * time.Second

var schemaName = regexp.MustCompile(`^[a-zA-Z_][a-zA-Z0-9_]{0,47}$`)

// Open opens the store in a schema of the database at url, and creates the schema if
// it does not exist. The URL has the form that pgx accepts,
// postgres://user@host:port/database, with parameters such as sslmode and
// pool_max_conns; the usual PG* environment variables apply too.
func Open(ctx context.Context, url string, o Options) (*Store, error) {
	config, o, err := parse(url, o)
	if err != nil {
		return nil, err
	}
	s := &Store{Hub: store.NewHub(), schema: o.Schema, existing: o.Existing, timeout: o.Timeout}
	s.life, s.end = context.WithCancel(context.Background())
	pooled, err := s.prepare(ctx, config)
	if err != nil {
		return nil, err
	}
	s.pooled = pooled
	listen := config.ConnConfig.Copy()
	switch {
	case !pooled:
	case o.Direct == "":
		listen = nil
	default:
		if listen, err = pgx.ParseConfig(o.Direct); err != nil {
			return nil, unreadable("the direct URL", err)
		}
		if err := s.checkDirect(ctx, config.ConnConfig, listen); err != nil {
			return nil, err
		}
	}
	const appends = "WITH head AS (UPDATE SCHEMA.journals SET last = $2::bigint + cardinality($3::bytea[]) WHERE name = $1 AND last = $2%s RETURNING id) INSERT INTO SCHEMA.entries SELECT head.id, $2 + e.n, e.data FROM head, unnest($3) WITH ORDINALITY AS e(data, n)"
	const writes = "SCHEMA.write1($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13)"
	s.sqlAppend = s.sql(fmt.Sprintf(appends, ""))
	s.sqlWrite = s.sql("SELECT " + writes)
	// The time-out of locks is set before a row is locked, until the commit.
	s.sqlAppendSoon = s.sql(fmt.Sprintf(appends, " AND set_config('lock_timeout', $4, true) <> ''"))
	s.sqlWriteSoon = s.sql("SELECT CASE WHEN set_config('lock_timeout', $14, true) <> '' THEN " + writes + " END")
	for kinds := range s.sqlLone {
		s.sqlLone[kinds] = s.sql(loneSQL(kinds))
	}
	s.sqlRead = s.sql("SELECT j.last, e.seq, e.data FROM SCHEMA.journals j LEFT JOIN LATERAL (SELECT seq, data FROM SCHEMA.entries WHERE journal = j.id AND seq > $2 ORDER BY seq LIMIT $3) e ON true WHERE j.name = $1")
	s.sqlJournals = s.sql("SELECT name FROM SCHEMA.journals WHERE name > $1 AND last >= 0 ORDER BY name LIMIT $2")
	s.sqlGet = s.sql("SELECT version, value FROM SCHEMA.cells WHERE key = $1")
	s.sqlCount = s.sql("SELECT count(*) FROM SCHEMA.cells WHERE key >= $1 AND key < $2")
	s.sqlList = s.sql("SELECT key, version, value FROM SCHEMA.cells WHERE key >= $1 AND key < $2 ORDER BY key LIMIT $3")
	config.BeforeConnect = s.gate.enter
	config.AfterConnect = func(ctx context.Context, c *pgx.Conn) error {
		err := s.admit(ctx, c)
		if err == nil && !pooled {
			// Plans are made once, and stay good when a table grows.
			_, err = c.Exec(ctx, "SET plan_cache_mode = force_generic_plan; SET enable_seqscan = off; SET enable_hashjoin = off; SET enable_mergejoin = off", pgx.QueryExecModeSimpleProtocol)
		}
		return entered(c, err)
	}
	if s.pool, err = pgxpool.NewWithConfig(context.WithoutCancel(ctx), config); err != nil {
		return nil, s.failed("open", err)
	}
	s.writer = newWriter(s)
	direct := &s.gate
	if pooled { // what listens has another server
		direct = new(gate)
	}
	s.news = newNews(s, listen, direct)
	return s, nil
}

// parse reads a URL and moves the parameters that pgx does not know to o.
func parse(text string, o Options) (*pgxpool.Config, Options, error) {
	u, err := url.Parse(text)
	if err != nil || u.Opaque != "" {
		return nil, o, unreadable("the URL of the database", nil)
	}
	q := u.Query()
	if q.Has("schema") {
		o.Schema = q.Get("schema")
	}
	if q.Has("direct") {
		o.Direct = q.Get("direct")
	}
	if q.Has("existing") {
		if o.Existing, err = strconv.ParseBool(q.Get("existing")); err != nil {
			return nil, o, fmt.Errorf("%w: pgstore: existing=%s in the URL; use true or false", store.ErrInvalid, q.Get("existing"))
		}
	}
	if direct, err := url.Parse(o.Direct); err != nil || direct.Opaque != "" {
		return nil, o, unreadable("the direct URL", nil)
	} else {
		o.Direct = direct.String()
	}
	if o.Schema == "" {
		o.Schema = "perdure"
	}
	if o.Timeout <= 0 {
		o.Timeout = 15 * time.Second
	}
	if !schemaName.MatchString(o.Schema) {
		return nil, o, fmt.Errorf("%w: pgstore: %q cannot be the name of a schema here; use up to 48 letters, digits and underscores", store.ErrInvalid, o.Schema)
	}
	limited := q.Has("pool_max_conns")
	q.Del("schema")
	q.Del("direct")
	q.Del("existing")
	u.RawQuery = q.Encode()
	config, err := pgxpool.ParseConfig(u.String())
	if err != nil {
		return nil, o, unreadable("the URL of the database", err)
	}
	if !limited {
		config.MaxConns = maxConns
	}
	if !q.Has("connect_timeout") && os.Getenv("PGCONNECT_TIMEOUT") == "" {
		config.ConnConfig.ConnectTimeout = connectTimeout // pgx would wait for two minutes
	}
	if config.ConnConfig.RuntimeParams["application_name"] == "" {
		config.ConnConfig.RuntimeParams["application_name"] = "perdure"
	}
	return config, o, nil
}

// unreadable returns the error of a URL that cannot be used. It has nothing of the
// URL in it, since passwords may be anywhere there: of pgx's error, which may be nil,
// it keeps what follows the quoted URL.
func unreadable(what string, err error) error {
	why := ""
	if err != nil {
		if _, rest, ok := strings.Cut(err.Error(), "`: "); ok {
			why = ": " + rest
		}
	}
	return fmt.Errorf("%w: pgstore: %s cannot be read; write it like postgres://user@host:5432/database%s", store.ErrInvalid, what, why)
}

// prepare connects once to read the server's durability, to migrate, and to detect a
// pooler. A pooler may run each transaction on another connection to the server, so
// prepare then turns off prepared statements.
func (s *Store) prepare(ctx context.Context, config *pgxpool.Config) (pooled bool, err error) {
	first := config.ConnConfig.Copy()
	first.DefaultQueryExecMode = pgx.QueryExecModeExec
	c, err := pgx.ConnectConfig(ctx, first)
	if err != nil {
		return false, s.failed("connect to", err)
	}
	defer c.Close(context.WithoutCancel(ctx))
	var backend uint32
	bounded, cancel := s.call(ctx)
	defer cancel()
	if s.durability, s.weakness, err = s.inspect(bounded, c); err == nil {
		err = s.migrate(ctx, c)
	}
	if err == nil {
		bounded, cancel := s.call(ctx)
		defer cancel()
		err = c.QueryRow(bounded, "SELECT pg_backend_pid()").Scan(&backend)
	}
	if err != nil {
		return false, s.failed("open", err)
	}
	pooled = backend != c.PgConn().PID()
	if pooled && config.ConnConfig.DefaultQueryExecMode == pgx.QueryExecModeCacheStatement {
		config.ConnConfig.DefaultQueryExecMode = pgx.QueryExecModeExec
	}
	return pooled, nil
}

var minVersion = 140000 // a variable for tests

// inspect reads what the writes of a connection survive: with a server that does not
// sync, only the death of this process. It says what to change then. It returns an error
// if the server accepts no writes.
func (s *Store) inspect(ctx context.Context, c *pgx.Conn) (_ store.Durability, weakness string, _ error) {
	var version int
	var fsync, pages, commit string
	var replica, readOnly bool
	err := c.QueryRow(ctx, "SELECT current_setting('server_version_num')::int, current_setting('fsync'), current_setting('full_page_writes'), current_setting('synchronous_commit'), pg_is_in_recovery(), current_setting('transaction_read_only')::bool").
		Scan(&version, &fsync, &pages, &commit, &replica, &readOnly)
	switch {
	case err != nil:
		return store.None, "", err
	case version < minVersion:
		return store.None, "", fmt.Errorf("%w: pgstore: the server is PostgreSQL %d; %d is the oldest that works", store.ErrInvalid, version/10000, minVersion/10000)
	case replica:
		return store.None, "", fmt.Errorf("%w: it is a read replica; connect to the primary, or name all servers in the URL and add target_session_attrs=read-write", ErrReplica)
	case readOnly:
		return store.None, "", fmt.Errorf("%w: transactions of this user only read; set default_transaction_read_only to off", ErrReplica)
	case fsync != "on":
		return store.Process, "the server does not sync what it writes: set fsync = on", nil
	case pages != "on":
		return store.Process, "a power failure can tear the server's pages: set full_page_writes = on", nil
	case commit == "off":
		return store.Process, "commits of this user do not wait for the disk: set synchronous_commit = on for the server, the database or the user", nil
	}
	return store.Power, "", nil
}

// admit returns an error if a new connection is less durable than the store.
func (s *Store) admit(ctx context.Context, c *pgx.Conn) error {
	class, _, err := s.inspect(ctx, c)
	if err == nil && class < s.durability {
		err = fmt.Errorf("%w: pgstore: a new connection to the server is less durable than the one that opened the store; look at fsync, full_page_writes and synchronous_commit", store.ErrWeak)
	}
	return err
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
		for c := s.takeIdle(); c != nil; c = s.takeIdle() {
			cutOff(c)
		}
		s.pool.Close()
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

// call returns a context that bounds one statement.
func (s *Store) call(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(called(ctx), s.timeout)
}

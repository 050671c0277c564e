package server

import (
	"cmp"
	"log/slog"
	"net/http"
	"sync"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/api"
	"github.com/perdure/perdure/internal/threads"
	"github.com/perdure/perdure/server/internal/feed"
	"github.com/perdure/perdure/store"
)

// Options configure a server. The zero value is ready to use for a server that
// only this machine can reach.
type Options struct {
	// Auth says who may do what. If it is nil, anyone whom Local lets in may do
	// anything.
	Auth Authenticator
	// Local decides about requests if there is no Auth: to refuse one, it returns an
	// error that matches api.ErrUnauthorized. If Local is nil, everyone is let in.
	Local func(*http.Request) error
	// Hosts are the names by which the server may be called, besides those of this
	// machine itself: localhost and loopback addresses. "*" allows any.
	Hosts []string
	// Origins are the web origins whose pages may call the server, such as
	// https://console.example. "*" allows any, and needs Auth.
	Origins []string
	// Logger receives one line for each request that failed because of the server.
	// The default discards it.
	Logger *slog.Logger
	// Version is the version of the program, which stats shows.
	Version string
	// MaxBody is the size of the largest JSON body in bytes; 0 means 4 MiB.
	MaxBody int64
	// MaxUpload is the size of the largest upload in bytes, at most 1 GiB; 0 means
	// 64 MiB.
	MaxUpload int64
	// Body is how long the body of a request may take to arrive, plus a second for
	// each 8 KiB; 0 means 30 s.
	Body time.Duration
	// Heartbeat is how often a silent stream is sent a comment; 0 means 15 s.
	Heartbeat time.Duration
	// Retry is how long readers of a stream are told to wait before they
	// reconnect; 0 means 1 s.
	Retry time.Duration
	// Stall is how long a reader may go without reading any of an answer before it
	// is disconnected; 0 means 20 s.
	Stall time.Duration
	// Limits bound what is in progress for all callers together, TenantLimits for
	// each tenant, and TokenLimits for each token. The defaults are 10 000
	// streams, 2000 requests and 256 MiB of memory for the server, half of that
	// for a tenant, and a quarter for a token. UserLimits bound all tokens that
	// are limited to the same user together: 100, 50 and 32 MiB. Without Auth only
	// Limits apply.
	Limits, TenantLimits, TokenLimits, UserLimits Limits
	// Quota bounds what each tenant may have, and Quotas, if it is not nil, what
	// certain tenants may. The default is no bound.
	Quota  Quota
	Quotas Quotas
	// Faces are protocols of other systems that the server speaks besides its own
	// API.
	Faces []Face
	// Metrics, if it is not nil, adds what the workers of this process do to /metrics.
	// It has to be an Observer of the runtime, too.
	Metrics *Metrics
	// Middleware, if it is not nil, is called with the handler of all routes and returns
	// what is served instead, such as one that traces requests: see package otel.
	Middleware func(http.Handler) http.Handler
	// Connections is how many connections the server of HTTPServer may have; 0
	// means 16 384. Idle connections make room for new ones.
	Connections int
}

// Server serves the API. It is an http.Handler.
type Server struct {
	rt       *perdure.Runtime
	opts     Options
	mux      router
	handler  http.Handler
	started  time.Time
	bound    map[string]bool // operations that have a handler
	faces    []*api.Info     // routes besides those of operations
	tokens   *Tokens         // nil: Options.Auth keeps its tokens elsewhere
	tickets  tickets
	sessions sessions
	stop     chan struct{} // closed by Close
	once     sync.Once
	meter    meter
	counts   counts // of threads by status
	sums     counts // of what they use
	tallies  tallies
	ledger   ledger
	events   streamCounts
	hub      feed.Hub
	probed   probed
	quotas   *quotas
	flows    func() []api.FlowInfo
}

// New returns the API of a runtime.
func New(rt *perdure.Runtime, o Options) *Server {
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	o.MaxBody = cmp.Or(o.MaxBody, 4<<20)
	o.MaxUpload = min(cmp.Or(o.MaxUpload, defaultUpload), mostUpload)
	o.Body = cmp.Or(o.Body, 30*time.Second)
	o.Heartbeat = cmp.Or(o.Heartbeat, 15*time.Second)
	o.Retry = cmp.Or(o.Retry, time.Second)
	o.Stall = cmp.Or(o.Stall, 20*time.Second)
	o.Connections = cmp.Or(o.Connections, 16_384)
	o.Limits, o.TenantLimits = o.Limits.or(serverLimits), o.TenantLimits.or(tenantLimits)
	o.TokenLimits, o.UserLimits = o.TokenLimits.or(tokenLimits), o.UserLimits.or(userLimits)
	s := &Server{rt: rt, opts: o, started: time.Now(), bound: map[string]bool{}, stop: make(chan struct{}), tokens: tokensOf(rt, o.Auth),
		meter:  newMeter(),
		counts: counts{count: countStatuses, tenants: map[string]*counted{}},
		sums:   counts{tenants: map[string]*counted{}},
		ledger: ledger{used: map[bucket]Limits{}, turns: map[bucket]int{}}}
	s.sums.count = s.tallies.countThreads
	if o.Metrics != nil {
		o.Metrics.expect(rt.Flows())
	}
	s.flows = s.describeFlows()
	all := threads.Behind(rt).All
	s.tickets = tickets{store: all.Store, hash: all.Hash, auth: o.Auth}
	s.sessions = newSessions(all.Hash)
	logTo(o.Auth, o.Logger)
	s.quotas = newQuotas(s)
	if s.quotas.on() {
		go s.quotas.share.run()
	}
	s.routes()
	for _, op := range api.All() {
		if !s.bound[op.Name] {
			panic("server: nothing handles the operation " + op.Name)
		}
	}
	s.handler = s.patient(s.guard(s.wrap(&s.mux.mux)))
	if o.Middleware != nil {
		s.handler = o.Middleware(s.handler)
	}
	return s
}

// store returns the store of the runtime.
func (s *Server) store() store.Store { return threads.Behind(s.rt).All.Store }

// ServeHTTP serves a request.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) { s.handler.ServeHTTP(w, r) }

// routes binds the operations to their handlers.
func (s *Server) routes() {
	s.threadRoutes()
	s.runRoutes()
	s.bulkRoutes()
	s.scheduleRoutes()
	s.retentionRoutes()
	s.userRoutes()
	s.eventRoutes()
	s.travelRoutes()
	s.askRoutes()
	s.memoryRoutes()
	s.uploadRoutes()
	s.archiveRoutes()
	s.systemRoutes()
	s.backupRoutes()
	s.keyRoutes()
	s.usageRoutes()
	s.tokenRoutes()
	s.sessionRoutes()
	for _, face := range s.opts.Faces {
		for _, route := range face {
			s.bindRoute(route)
		}
	}
}

// Close tells all readers of streams to reconnect later, and refuses new ones. Call it
// before http.Server.Shutdown, which waits for them, and before the store is closed: if
// there are quotas, Close stores the latest counts of starts for other servers.
func (s *Server) Close() {
	s.once.Do(func() {
		close(s.stop)
		if !s.quotas.on() {
			return
		}
		select {
		case <-s.quotas.share.done:
		case <-time.After(shareEvery): // the store stalls
		}
	})
}

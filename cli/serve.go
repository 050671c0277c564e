package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"net"
	"net/http"
	"os"
	"slices"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/cli/internal/exit"
	"github.com/perdure/perdure/cli/internal/link"
	"github.com/perdure/perdure/docs"
	"github.com/perdure/perdure/internal/safe"
	"github.com/perdure/perdure/server"
	"github.com/perdure/perdure/server/adk"
	"github.com/perdure/perdure/server/agentkit"
	"github.com/perdure/perdure/server/mcpface"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// serveCommand returns the command that serves the API for others.
func serveCommand(a *app) *cobra.Command {
	var address, tokens, auth, cert, key string
	var hosts, origins []string
	var worker, insecure, noConsole bool
	var maxUpload int64
	var quota map[string]int64
	var quotaFile string
	var limits, tenantLimits, tokenLimits, userLimits map[string]int64
	var o perdure.Options
	var keep keepFlags
	var send sendFlags
	engine := func(context.Context, *slog.Logger) (string, func(), error) { return "", func() {}, nil }
	c := &cobra.Command{
		Use:   "serve",
		Short: "serve the API of a store, and execute its runs",
		Long: `Serves the API of a store and executes its runs. Callers need a token, from the
store or from a file; create the first one on the store itself, as in the example. A
program that authenticates its users itself accepts tokens of the store only with
--auth store, since an admin of a tenant could create them in anyone's name.

SIGTERM or Ctrl-C shuts it down gracefully: /readyz fails, streams are told to connect
elsewhere, and runs are handed over to other workers: at once between two steps, and
within a step when it ends or --grace is over.

If the store's engine, such as PostgreSQL, cannot be reached at the start, the server
listens but is not ready, and keeps trying.`,
		Example: `  perdure token create me --scopes admin --store sqlite:perdure.db
  perdure serve --store sqlite:perdure.db --addr 0.0.0.0:7373 --host agents.example`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			if c.Flags().Changed("server") {
				return exit.Usage(errors.New("serve is a server itself: name its --store and --addr"))
			}
			if auth != "store" && auth != "none" {
				return exit.Usage(fmt.Errorf("--auth is store or none, not %q", auth))
			}
			if err := checkWork(o); err != nil {
				return err
			}
			authed := auth == "store" || tokens != "" || a.opts.Server.Auth != nil
			if _, _, err := net.SplitHostPort(address); err != nil {
				return exit.Usage(fmt.Errorf("--addr: %q is not an address such as 127.0.0.1:7373: %w", address, err))
			}
			if err := server.CheckListen(address, authed, insecure); err != nil {
				return exit.Usage(fmt.Errorf("%w; use --insecure if that is what you want", err))
			}
			if err := keep.options(a, &o); err != nil {
				return err
			}
			sent, err := send.open(c.Context(), a)
			if err != nil {
				return err
			}
			defer sent.close()
			log := sent.log
			sent.metrics = server.NewMetrics()
			o.Logger, o.Observer = log, sent.observer()
			so := a.serverOptions(log)
			sent.serves(&so)
			so.Hosts, so.Origins = append(slices.Clone(so.Hosts), hosts...), append(slices.Clone(so.Origins), origins...)
			for name, to := range map[string]struct {
				given map[string]int64
				*server.Limits
			}{"limits": {limits, &so.Limits}, "tenant-limits": {tenantLimits, &so.TenantLimits}, "token-limits": {tokenLimits, &so.TokenLimits}, "user-limits": {userLimits, &so.UserLimits}} {
				if err := limitsOf(to.given, to.Limits); err != nil {
					return exit.Usage(fmt.Errorf("--%s: %w", name, err))
				}
			}
			if maxUpload < 0 || maxUpload > 1<<30 {
				return exit.Usage(errors.New("--max-upload is a number of bytes, at most 1073741824"))
			}
			so.MaxUpload = cmp.Or(maxUpload, so.MaxUpload)
			for name, n := range quota {
				if err := so.Quota.Set(name, n); err != nil {
					return exit.Usage(fmt.Errorf("--quota: %w", err))
				}
			}
			if quotaFile != "" {
				if so.Quotas, err = server.QuotaFile(quotaFile, log); err != nil {
					return exit.Usage(err)
				}
			}
			var known []server.Authenticator
			if so.Auth != nil {
				known = append(known, so.Auth)
			}
			if tokens != "" {
				file, err := server.TokenFile(tokens)
				if err != nil {
					return exit.Usage(err)
				}
				known = append(known, file)
			}
			certificate, err := loadCertificate(cert, key, log)
			if err != nil {
				return exit.Usage(err)
			}
			url, stop, err := engine(c.Context(), log)
			if err != nil {
				return exit.Usage(err)
			}
			defer stop()
			if url == "" {
				if url, err = a.conn.StoreHere(); err != nil {
					return err
				}
			}
			l, err := listen(c.Context(), "addr", address)
			if err != nil {
				return err
			}
			defer l.Close()
			s := &site{routes: a.opts.Routes, log: log, worker: worker, certificate: certificate, console: !noConsole}
			var failed atomic.Pointer[error]
			ready := s.notReady(l, &failed)
			rt, closeStore, err := a.awaitRuntime(c.Context(), url, o, &failed)
			ready()
			if err != nil {
				return untilStopped(c.Context(), err)
			}
			defer closeStore()
			if auth == "store" {
				held := server.NewTokens(rt)
				if some, err := held.Exist(c.Context()); err == nil && !some && len(known) == 0 {
					log.Warn("there is no token yet, and nobody gets in without one", "create", a.program()+" token create me --scopes admin --store "+safe.Quote(link.WithoutPassword(url)))
				}
				known = append(known, held)
			}
			if len(known) > 0 {
				so.Auth = server.Any(known...)
			}
			if !authed {
				log.Warn("NO TOKENS: anyone who can reach this address can do anything", "address", l.Addr().String())
			}
			warnOfKeys(c.Context(), rt, log)
			s.rt, s.api, s.faces = rt, server.New(rt, so), so.Faces
			stopMetrics, err := sent.collect(c.Context(), s.api.Collector())
			if err != nil {
				return err
			}
			defer stopMetrics()
			if worker {
				logRules(log, o.Retention)
			}
			log.Info("serving", "address", s.scheme()+"://"+l.Addr().String(), "store", link.StoreName(url), "worker", worker, "process", os.Getpid())
			err = s.run(c.Context(), l)
			if err == nil {
				log.Info("stopped")
			}
			return err
		},
	}
	f := c.Flags()
	f.StringVar(&address, "addr", link.DevAddress, "address to listen on")
	f.StringVar(&auth, "auth", a.defaultAuth(), "store: tokens created with perdure token create; none: only those of --tokens, if any, and of the program's own users")
	f.StringVar(&tokens, "tokens", "", "JSON file with more tokens")
	f.StringVar(&cert, "tls-cert", "", "PEM file with the certificate for HTTPS, followed by those of its issuers; read again when it changes")
	f.StringVar(&key, "tls-key", "", "PEM file with its key")
	f.StringArrayVar(&hosts, "host", nil, "host name by which clients may call the server, besides this machine's own; * is any")
	f.StringArrayVar(&origins, "origin", nil, "web origin whose pages may call the server, such as https://console.example")
	f.BoolVar(&worker, "worker", true, "execute runs in this process too")
	f.BoolVar(&noConsole, "no-console", false, "do not serve the web console at /console/")
	addWork(f, &o)
	f.StringToInt64Var(&limits, "limits", nil, "limits of what is in progress at a time: streams=N,requests=N,bytes=N (of responses that wait for their readers)")
	f.StringToInt64Var(&tenantLimits, "tenant-limits", nil, "the same for each tenant")
	f.StringToInt64Var(&tokenLimits, "token-limits", nil, "the same for each token")
	f.StringToInt64Var(&userLimits, "user-limits", nil, "the same for each user, across all tokens and tickets that are limited to the user")
	f.StringToInt64Var(&quota, "quota", nil, "what each tenant may have: threads=N,bytes=N,runs=N,starts=N,streams=N (runs at a time, starts per minute)")
	f.StringVar(&quotaFile, "quota-file", "", "JSON file with the quotas of certain tenants, such as {\"acme\": {\"threads\": 5000}}; read again when it changes")
	f.Int64Var(&maxUpload, "max-upload", 0, "size of the largest upload in bytes, up to 1 GiB; 0 means 64 MiB")
	keep.add(f)
	send.add(f)
	f.BoolVar(&insecure, "insecure", false, "listen without tokens where other machines can connect")
	if a.opts.Engine != nil {
		engine = a.opts.Engine(f)
	}
	return c
}

// defaultAuth is --auth without the flag. In a program with its own users, tokens of the
// store would outlive users that it has removed, so the operator has to ask for them.
func (a *app) defaultAuth() string {
	if a.opts.Server.Auth != nil {
		return "none"
	}
	return "store"
}

// serverOptions returns the program's options of the API.
func (a *app) serverOptions(log *slog.Logger) server.Options {
	o := a.opts.Server
	o.Logger = cmp.Or(o.Logger, log)
	o.Version = cmp.Or(o.Version, version())
	o.Faces = append(slices.Clone(o.Faces), adk.Face(), agentkit.Face(), mcpface.Face(mcpface.Options{Logger: o.Logger, Docs: docs.FS}))
	return o
}

// limitsOf sets limits from a flag.
func limitsOf(given map[string]int64, l *server.Limits) error {
	for name, n := range given {
		if n < 1 || n > math.MaxInt32 && name != "bytes" {
			return fmt.Errorf("%s=%d; use a number of at least 1", name, n)
		}
		switch name {
		case "streams":
			l.Streams = int(n)
		case "requests":
			l.Requests = int(n)
		case "bytes":
			l.Bytes = n
		default:
			return fmt.Errorf("there is no limit %q; use streams, requests or bytes", name)
		}
	}
	return nil
}

// shutdownGrace is how long requests may take to end when a server stops.
const shutdownGrace = 5 * time.Second

// site is the API and a worker in one process.
type site struct {
	rt     *perdure.Runtime
	api    *server.Server
	faces  []server.Face                          // of the API
	routes func(*http.ServeMux, *perdure.Runtime) // the program's own; nil: none
	log    *slog.Logger
	worker bool // execute runs too

	console     bool
	certificate *certificate // nil: without TLS
}

func (s *site) scheme() string {
	if s.certificate != nil {
		return "https"
	}
	return "http"
}

func (s *site) serve(h *http.Server, l net.Listener) error {
	if s.certificate == nil {
		return h.Serve(l)
	}
	h.TLSConfig = s.certificate.config()
	return h.ServeTLS(l, "", "")
}

// run serves until the context ends, and then stops gracefully: it is no longer
// ready and accepts no new streams, hands over runs, and finishes requests.
func (s *site) run(ctx context.Context, l net.Listener) error {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	h := s.api.HTTPServer()
	h.Handler = s.handler(h.Handler)
	h.ErrorLog = slog.NewLogLogger(s.log.Handler(), slog.LevelWarn)
	h.ConnContext = withCaller
	served := make(chan error, 1)
	go func() {
		served <- s.serve(h, l)
		stop()
	}()
	worked := make(chan error, 1)
	go func() {
		if !s.worker {
			worked <- nil
			return
		}
		err := s.rt.Work(ctx)
		stop()
		worked <- err
	}()
	<-ctx.Done()
	s.api.Close()
	down, cancel := context.WithTimeout(context.WithoutCancel(ctx), shutdownGrace)
	defer cancel()
	if err := h.Shutdown(down); err != nil {
		s.log.Warn("some requests were cut off", "error", err)
		h.Close()
	}
	err := <-served
	if errors.Is(err, http.ErrServerClosed) {
		err = nil
	}
	return errors.Join(err, <-worked)
}

// listen listens on an address. If it is in use, the error says what to do.
func listen(ctx context.Context, flag, address string) (net.Listener, error) {
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", address)
	if err == nil {
		return l, nil
	}
	if errors.Is(err, syscall.EADDRINUSE) {
		err = fmt.Errorf("%w: perhaps by another perdure; stop it, or use a free port with --%s 127.0.0.1:0", err, flag)
	}
	return nil, &exit.Error{Code: exit.Unavailable, Err: err}
}

// addWork adds the flags of everything that executes runs.
func addWork(f *pflag.FlagSet, o *perdure.Options) {
	f.IntVar(&o.Concurrency, "concurrency", 0, "how many runs to execute at a time; 0 means 1000")
	f.DurationVar(&o.Grace, "grace", 0, "how long running steps may continue when it is stopped; 0 means 10s")
}

func checkWork(o perdure.Options) error {
	if o.Concurrency < 0 {
		return exit.Usage(errors.New("--concurrency is how many runs may be executed at a time"))
	}
	if o.Grace < 0 {
		return exit.Usage(errors.New("--grace is how long running steps may go on, such as 2m"))
	}
	return nil
}

// workerCommand returns the command that executes runs and serves nothing.
func workerCommand(a *app) *cobra.Command {
	var o perdure.Options
	var keep keepFlags
	var send sendFlags
	var metrics string
	c := &cobra.Command{
		Use:   "worker",
		Short: "execute the runs of a store",
		Long: `Executes the runs of a store until it is stopped. Start as many as you like. The
first interrupt or SIGTERM hands over runs that are between two steps, and lets
running steps continue for --grace. If a worker is killed, nothing recorded is lost, and
others take over its runs when its lease expires. If the store's engine, such as
PostgreSQL, cannot be reached, the worker keeps trying. With --metrics, anyone who can
reach that address can read /metrics there.`,
		Example: "  perdure worker --store sqlite:perdure.db --concurrency 16 --metrics 127.0.0.1:9373",
		Args:    cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			if c.Flags().Changed("server") {
				return exit.Usage(errors.New("a worker needs --store: it executes runs where they are kept"))
			}
			if err := checkWork(o); err != nil {
				return err
			}
			url, err := a.conn.StoreHere()
			if err != nil {
				return err
			}
			if err := keep.options(a, &o); err != nil {
				return err
			}
			sent, err := send.open(c.Context(), a)
			if err != nil {
				return err
			}
			defer sent.close()
			if metrics != "" || sent.Telemetry != nil {
				sent.metrics = server.NewMetrics()
			}
			o.Logger, o.Observer = sent.log, sent.observer()
			rt, closeStore, err := a.awaitRuntime(c.Context(), url, o, new(atomic.Pointer[error]))
			if err != nil {
				return untilStopped(c.Context(), err)
			}
			defer closeStore()
			if sent.metrics != nil {
				shown := sent.metrics.Handler(rt) // which begins rare counters at zero
				if metrics != "" {
					stop, err := a.serveMetrics(c.Context(), metrics, shown)
					if err != nil {
						return err
					}
					defer stop()
				}
				stopMetrics, err := sent.collect(c.Context(), sent.metrics)
				if err != nil {
					return err
				}
				defer stopMetrics()
			}
			warnOfKeys(c.Context(), rt, o.Logger)
			logRules(o.Logger, o.Retention)
			fmt.Fprintf(a.term.Err, "%s: works on %s, process %d; stop it with Ctrl-C\n", a.shellName(), link.StoreName(url), os.Getpid())
			return rt.Work(c.Context())
		},
	}
	addWork(c.Flags(), &o)
	keep.add(c.Flags())
	send.add(c.Flags())
	c.Flags().StringVar(&metrics, "metrics", "", "show metrics for Prometheus at this address, such as 127.0.0.1:9373")
	c.Flags().DurationVar(&o.Lease, "lease", 0, "how long the runs of a killed worker wait; 0 means 3s")
	return c
}

// serveMetrics serves the metrics of a worker until the function that it returns is
// called.
func (a *app) serveMetrics(ctx context.Context, address string, h http.Handler) (stop func(), err error) {
	if _, _, err := net.SplitHostPort(address); err != nil {
		return nil, exit.Usage(fmt.Errorf("--metrics: %q is not an address such as 127.0.0.1:9373: %w", address, err))
	}
	l, err := listen(ctx, "metrics", address)
	if err != nil {
		return nil, err
	}
	s := &http.Server{Handler: h, ReadHeaderTimeout: 10 * time.Second, MaxHeaderBytes: 16 << 10}
	go s.Serve(l)
	fmt.Fprintf(a.term.Err, "%s: metrics are at http://%s/metrics\n", a.shellName(), l.Addr())
	return func() { _ = s.Close() }, nil
}

// logger returns the program's own, or one that writes for people.
func (a *app) logger() *slog.Logger {
	return cmp.Or(a.opts.Runtime.Logger, slog.New(slog.NewTextHandler(a.term.Err, nil)))
}

package cli

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"os"
	"slices"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/cli/internal/exit"
	"github.com/perdure/perdure/cli/internal/link"
	"github.com/perdure/perdure/server"
	"github.com/perdure/perdure/server/adk"
	"github.com/perdure/perdure/server/agentkit"
	"github.com/spf13/cobra"
)

func init() { register(serveCommand) }

// serveCommand makes the command that serves the API for others.
func serveCommand(a *app) *cobra.Command {
	var address, tokens, auth string
	var hosts, origins []string
	var worker, insecure bool
	var limits, tenantLimits, tokenLimits, userLimits map[string]int64
	var o perdure.Options
	c := &cobra.Command{
		Use:   "serve",
		Short: "serve the API of a store, and execute its runs",
		Long: `Serves the API of a store and executes its runs. Callers need a token, from the
store or from a file; create the first one on the store itself, as in the example.

SIGTERM or Ctrl-C ends it in order: /readyz fails, streams are told to connect
elsewhere, and runs are handed over to other workers after their current step.`,
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
			url, err := a.conn.StoreHere()
			if err != nil {
				return err
			}
			authed := auth == "store" || tokens != "" || a.opts.Server.Auth != nil
			if err := server.CheckListen(address, authed, insecure); err != nil {
				return exit.Usage(fmt.Errorf("%w; --insecure if that is what you want", err))
			}
			log := a.logger()
			o.Logger, o.Observer = log, transitions{log}
			rt, closeStore, err := a.conn.OpenRuntime(c.Context(), url, o)
			if err != nil {
				return err
			}
			defer closeStore()
			so := a.serverOptions(log)
			so.Hosts, so.Origins = append(slices.Clone(so.Hosts), hosts...), append(slices.Clone(so.Origins), origins...)
			if so.Auth == nil {
				so.Auth, err = authenticator(rt, auth, tokens)
			}
			if err != nil {
				return exit.Usage(err)
			}
			for name, to := range map[string]struct {
				given map[string]int64
				*server.Limits
			}{"limits": {limits, &so.Limits}, "tenant-limits": {tenantLimits, &so.TenantLimits}, "token-limits": {tokenLimits, &so.TokenLimits}, "user-limits": {userLimits, &so.UserLimits}} {
				if err := limitsOf(to.given, to.Limits); err != nil {
					return exit.Usage(fmt.Errorf("--%s: %w", name, err))
				}
			}
			l, err := listen(c.Context(), address)
			if err != nil {
				return err
			}
			if !authed {
				log.Warn("NO TOKENS: anyone who can reach this address can do anything", "address", l.Addr().String())
			}
			log.Info("serving", "address", "http://"+l.Addr().String(), "store", url, "worker", worker, "process", os.Getpid())
			s := &site{rt: rt, api: server.New(rt, so), routes: a.opts.Routes, log: log, worker: worker}
			err = s.run(c.Context(), l)
			if err == nil {
				log.Info("stopped")
			}
			return err
		},
	}
	f := c.Flags()
	f.StringVar(&address, "addr", link.DevAddress, "address to listen on")
	f.StringVar(&auth, "auth", "store", "store: tokens created with perdure token create; none: only those of --tokens, if any")
	f.StringVar(&tokens, "tokens", "", "JSON file with more tokens")
	f.StringArrayVar(&hosts, "host", nil, "host name by which clients may call the server, besides this machine's own; * is any")
	f.StringArrayVar(&origins, "origin", nil, "web origin whose pages may call the server, such as https://console.example")
	f.BoolVar(&worker, "worker", true, "execute runs in this process too")
	f.IntVar(&o.Concurrency, "concurrency", 0, "how many runs to execute at a time; 0 means 64")
	f.StringToInt64Var(&limits, "limits", nil, "what may be in progress at a time: streams=N,requests=N,bytes=N (of responses that wait for their readers)")
	f.StringToInt64Var(&tenantLimits, "tenant-limits", nil, "the same for each tenant")
	f.StringToInt64Var(&tokenLimits, "token-limits", nil, "the same for each token")
	f.StringToInt64Var(&userLimits, "user-limits", nil, "the same for each user, across all tokens and tickets that are limited to the user")
	f.BoolVar(&insecure, "insecure", false, "listen without tokens where other machines can connect")
	return c
}

// serverOptions returns the program's options of the API.
func (a *app) serverOptions(log *slog.Logger) server.Options {
	o := a.opts.Server
	if o.Logger == nil {
		o.Logger = log
	}
	if o.Version == "" {
		o.Version = version()
	}
	o.Faces = append(slices.Clone(o.Faces), adk.Face(), agentkit.Face())
	return o
}

// limitsOf sets limits as flags name them.
func limitsOf(given map[string]int64, l *server.Limits) error {
	for name, n := range given {
		if n < 1 || n > math.MaxInt32 && name != "bytes" {
			return fmt.Errorf("%s=%d; give a number from 1", name, n)
		}
		switch name {
		case "streams":
			l.Streams = int(n)
		case "requests":
			l.Requests = int(n)
		case "bytes":
			l.Bytes = n
		default:
			return fmt.Errorf("there is no limit of %q; there are streams, requests and bytes", name)
		}
	}
	return nil
}

// authenticator is who knows the tokens; nil if nobody is asked for one.
func authenticator(rt *perdure.Runtime, auth, file string) (server.Authenticator, error) {
	var known []server.Authenticator
	if auth == "store" {
		known = append(known, server.NewTokens(rt))
	}
	if file != "" {
		f, err := server.TokenFile(file)
		if err != nil {
			return nil, err
		}
		known = append(known, f)
	}
	switch len(known) {
	case 0:
		return nil, nil
	case 1:
		return known[0], nil
	}
	return server.Any(known...), nil
}

// transitions logs what becomes of runs, in a line each.
type transitions struct{ log *slog.Logger }

var _ perdure.Observer = transitions{}

// StepStarted changes nothing.
func (transitions) StepStarted(ctx context.Context, _ perdure.StepInfo) (context.Context, func(error)) {
	return ctx, func(error) {}
}

// Committed logs a change of a run's status.
func (t transitions) Committed(e perdure.Event) {
	about := []any{"thread", e.Thread, "run", e.Run}
	add := func(name, value string) {
		if value != "" {
			about = append(about, name, value)
		}
	}
	switch e.Kind {
	case "claimed", "suspended", "released":
		add("worker", e.Worker)
	case "ended":
		add("status", string(e.Status))
		add("error", e.Error)
	case "blocked", "quarantined":
		add("reason", e.Reason)
		add("error", e.Error)
	default:
		return
	}
	t.log.Info("run "+e.Kind, about...)
}

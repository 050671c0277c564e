package cli

import (
	"context"
	"crypto/subtle"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"os"
	"strings"
	"sync"
	"syscall"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/api"
	"github.com/perdure/perdure/cli/internal/exit"
	"github.com/perdure/perdure/cli/internal/link"
	"github.com/perdure/perdure/internal/peer"
	"github.com/perdure/perdure/internal/safe"
	"github.com/perdure/perdure/internal/terminal"
	"github.com/perdure/perdure/server"
	"github.com/spf13/cobra"
)

// devCommand returns the command that serves everything on this machine.
func devCommand(a *app) *cobra.Command {
	var address string
	var open bool
	var send sendFlags
	c := &cobra.Command{
		Use:   "dev",
		Short: "serve the API and execute runs on this machine, without any set-up",
		Long: `Serves the API and executes runs, in one process, for your user on this machine.
Everything is kept in ./.perdure: stop or kill it and start it again, and runs
continue where they were. If the usual port is taken, it uses another one.

On Linux it recognises your user by the connection. On other systems, callers need
the token that it prints when it starts; your own commands find it by themselves, and
the link to the console contains it. --open lets in every user of this machine.`,
		Example: "  perdure dev\n  perdure dev --addr 127.0.0.1:0 --store sqlite:other.db",
		Args:    cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			if c.Flags().Changed("server") {
				return exit.Usage(errors.New("dev is a server itself: call it without --server"))
			}
			if open && a.opts.Server.Auth != nil {
				return exit.Usage(errors.New("dev --open: this program says itself who may call it: call dev without --open"))
			}
			if err := server.CheckListen(address, false, false); err != nil {
				return exit.Usage(fmt.Errorf("dev serves this machine only: %w; perdure serve has tokens", err))
			}
			return a.dev(c.Context(), address, c.Flags().Changed("addr"), open, send)
		},
	}
	c.Flags().BoolVar(&open, "open", false, "let in every user of this machine")
	c.Flags().StringVar(&address, "addr", link.DevAddress, "local address to listen on")
	send.add(c.Flags())
	return c
}

// dev serves until the context ends. If fixed, no other address will do.
func (a *app) dev(ctx context.Context, address string, fixed, open bool, send sendFlags) error {
	url, err := a.conn.Store, error(nil)
	if url == "" {
		if url, err = a.conn.DevStore(); err != nil {
			return err
		}
	}
	sent, err := send.open(ctx, a)
	if err != nil {
		return err
	}
	defer sent.close()
	log := sent.log
	sent.metrics = server.NewMetrics()
	rt, closeStore, err := a.conn.OpenRuntime(ctx, url, perdure.Options{Logger: log, Observer: sent.observer()})
	if err != nil {
		return err
	}
	defer closeStore()
	l, err := a.listenDev(ctx, address, url, fixed)
	if err != nil {
		return err
	}
	defer l.Close()
	record, forget, err := a.conn.RecordDev(l.Addr(), url)
	if err != nil {
		a.hint("other commands need --server %s: %v", "http://"+l.Addr().String(), err)
	} else {
		defer forget()
	}
	o := a.serverOptions(log)
	sent.serves(&o)
	switch {
	case o.Auth != nil:
		o.Auth = server.Any(ownerToken(record.Secret), o.Auth)
	case !open:
		o.Local = ownerOnly(record.Secret)
	}
	a.welcome(ctx, rt, record, open)
	s := &site{rt: rt, api: server.New(rt, o), faces: o.Faces, routes: a.opts.Routes, log: log, worker: true, console: true}
	stopMetrics, err := sent.collect(ctx, s.api.Collector())
	if err != nil {
		return err
	}
	defer stopMetrics()
	if err := s.run(ctx, l); err != nil {
		return err
	}
	a.term.Printf("Stopped. Unfinished runs continue when it starts again.\n")
	return nil
}

// listenDev listens on the address, or on a free port if another program has the
// usual one. A second dev on the same store is more likely a mistake.
func (a *app) listenDev(ctx context.Context, address, url string, fixed bool) (net.Listener, error) {
	l, err := listen(ctx, "addr", address)
	if err == nil || fixed || !errors.Is(err, syscall.EADDRINUSE) {
		return l, err
	}
	if file, ok := link.SQLiteFile(url); ok && a.conn.DialDev(ctx, func(d link.DevRecord) bool { return d.Address == address && d.Serves(file) }) != nil {
		return nil, &exit.Error{Code: exit.Unavailable, Err: fmt.Errorf("dev already serves this store at http://%s: use it, or start another one with --addr 127.0.0.1:0", address)}
	}
	if l, err = listen(ctx, "addr", "127.0.0.1:0"); err == nil {
		a.hint("%s is taken by another program; this one has %s", address, l.Addr())
	}
	return l, err
}

// callerKey is the key of a connection's user, a func() (uid int, ok bool), in
// the context of its requests.
type callerKey struct{}

// withCaller lets requests find out which user opened their connection.
func withCaller(ctx context.Context, c net.Conn) context.Context {
	return context.WithValue(ctx, callerKey{}, sync.OnceValues(func() (int, bool) { return peer.Remote(c.LocalAddr(), c.RemoteAddr()) }))
}

// ownerOnly lets in the user of this process and anyone who knows its secret.
func ownerOnly(secret string) func(*http.Request) error {
	return func(r *http.Request) error {
		if ownerToken(secret).is(strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer ")) {
			return nil
		}
		if caller, ok := r.Context().Value(callerKey{}).(func() (int, bool)); ok {
			if uid, known := caller(); known && uid == os.Geteuid() {
				return nil
			}
		}
		return fmt.Errorf("%w: this server is only for the user who started it: send the token that perdure dev printed at the start, or start it with --open", api.ErrUnauthorized)
	}
}

// ownerToken is the secret of dev, which lets in whoever knows it beside those whom the
// program's own Auth knows.
type ownerToken string

func (t ownerToken) is(given string) bool {
	return subtle.ConstantTimeCompare([]byte(given), []byte(t)) == 1
}

// Authenticate implements server.Authenticator.
func (t ownerToken) Authenticate(_ context.Context, given string) (*server.Principal, error) {
	if !t.is(given) {
		return nil, api.ErrUnauthorized
	}
	return &server.Principal{Subject: "local", Scopes: []api.Scope{api.ScopeAdmin}}, nil
}

// welcome says what is served, and what to try.
func (a *app) welcome(ctx context.Context, rt *perdure.Runtime, d link.DevRecord, open bool) {
	flows := a.flowNames()
	address := "http://" + d.Address
	whom, header := "you", fmt.Sprintf("-H 'Authorization: Bearer %s' ", d.Secret)
	if a.opts.Server.Auth != nil {
		whom = "you and the users of this program"
	} else if open {
		whom, header = "every user of this machine", ""
	} else if at, err := netip.ParseAddrPort(d.Address); err == nil {
		if _, known := peer.Owner(at, netip.AddrPort{}); known {
			header = ""
		}
	}
	a.term.Printf("%s\n", a.term.Style(terminal.Bold, "Perdure serves "+address+", for "+whom+" only"))
	page := address + consolePath
	if header != "" {
		page += "#token=" + d.Secret // the page exchanges it for a session and removes it from its address
	}
	a.term.Printf("  console  %s\n  store    %s\n  flows    %s\n  API      %s/openapi.json\n  MCP      %s/mcp, for coding agents\n", page, d.Store, strings.Join(flows, ", "), address, address)
	if header != "" {
		a.term.Printf("  token    %s\n", d.Secret)
	}
	if len(flows) > 0 {
		to := ""
		if d.Address != link.DevAddress && a.conn.Store != "" {
			to = " --server " + address
		}
		flow, input := flows[0], a.sample(ctx, rt, flows[0])
		if a.opts.Example != "" {
			input, _ = json.Marshal(a.opts.Example)
		}
		argument := string(input)
		if argument[0] != '"' {
			argument = safe.Quote(argument)
		}
		a.term.Printf("\n%s\n", a.term.Style(terminal.Bold, "Try, in another terminal"))
		a.term.Print(fmt.Sprintf("  %s run %s %s%s\n", a.program(), flow, argument, to))
		a.term.Print(fmt.Sprintf("  %s threads%s\n", a.program(), to))
		a.term.Print(fmt.Sprintf("  curl %s--json '{\"flow\": %q, \"input\": %s}' %s/v1/runs\n", header, flow, input, address))
	}
	a.term.Printf("\nCtrl-C stops it.\n")
}

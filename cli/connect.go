package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/api"
	"github.com/perdure/perdure/client"
	"github.com/perdure/perdure/internal/inproc"
	"github.com/perdure/perdure/internal/safe"
	"github.com/perdure/perdure/server"
	"github.com/perdure/perdure/store"
	_ "github.com/perdure/perdure/store/filestore"   // file: URLs
	_ "github.com/perdure/perdure/store/memstore"    // memory: URLs
	_ "github.com/perdure/perdure/store/sqlitestore" // sqlite: URLs
	"github.com/spf13/cobra"
)

// Where dev keeps everything, and where it listens.
const (
	devFolder  = ".perdure"
	devFile    = "perdure.db"
	devAddress = "127.0.0.1:7373"
)

// patience is how often in a row a server that has answered once is tried again:
// for minutes, as a deploy may take.
const patience = 100

// link is what a command works on: a server, or the API of a store in this
// process.
type link struct {
	*client.Client
	runtime *perdure.Runtime // of a store; nil with a server
	close   func()
}

// connect returns what the flags name: a server, or a store. Without either it
// is ./.perdure: the dev server that serves it if one runs, else the store
// itself. Without that too it is this user's dev server at the usual address.
func (a *app) connect(ctx context.Context) (*link, error) {
	switch {
	case a.server != "" && a.store != "":
		return nil, usage(errors.New("give --server ($PERDURE_SERVER) or --store ($PERDURE_STORE), not both"))
	case a.server != "":
		return a.dial(a.server, a.givenToken())
	case a.store != "":
		return a.open(ctx, a.store)
	case a.token != "":
		return nil, usage(errors.New("name the server that the token is for with --server"))
	}
	file := filepath.Join(devFolder, devFile)
	if _, err := os.Stat(file); err == nil {
		if l := a.dialDev(ctx, func(d devRecord) bool { return d.serves(file) }); l != nil {
			return l, nil
		}
		return a.open(ctx, "sqlite:"+filepath.ToSlash(file))
	}
	var other devRecord
	if l := a.dialDev(ctx, func(d devRecord) bool { other = d; return d.Address == devAddress }); l != nil {
		if other.Program != a.program() {
			return nil, &exitError{code: exitUnavailable, err: fmt.Errorf("there is no store in ./%s; the dev server at %s is that of %s: name it with --server http://%s if you mean it, or start your own with %s dev", devFolder, devAddress, safe.Text(other.Program), devAddress, a.program())}
		}
		a.hint("on the dev server at http://%s, store %s", devAddress, safe.Text(other.Store))
		return l, nil
	}
	return nil, &exitError{code: exitUnavailable, err: fmt.Errorf("no dev server of yours is at %s and there is no store in ./%s; start one with %s dev, or name one with --server or --store", devAddress, devFolder, a.program())}
}

// choose lets a flag that names a server or a store win over the environment.
func (a *app) choose(c *cobra.Command) {
	server, store := c.Flags().Changed("server"), c.Flags().Changed("store")
	if server && !store {
		a.store = ""
	}
	if store && !server {
		a.server = ""
	}
}

// answers reports whether a Perdure server is there, as long as the context lasts.
func (l *link) answers(ctx context.Context) bool {
	_, err := client.Do(ctx, l.Client, api.HealthGet, api.Nothing{})
	return err == nil
}

// givenToken is the token for the server that is named.
func (a *app) givenToken() string { return cmp.Or(a.token, a.term.Env("PERDURE_TOKEN")) }

// dial returns a server. Without a token it gets the secret of dev if it is a
// dev server of this user.
func (a *app) dial(address, token string) (*link, error) {
	address = withScheme(address)
	if token == "" {
		token = a.devSecret(address)
	}
	t := a.newServerTransport()
	c, err := client.New(address, client.Options{Token: token, HTTP: &http.Client{Transport: &asTransport{a.as, t}}, Attempts: patience})
	if err != nil {
		return nil, usage(err)
	}
	l := &link{Client: c, close: func() {}}
	t.probe = l.answers
	return l, nil
}

// withScheme completes an address such as localhost:7373. What leaves the machine
// is encrypted unless the address says otherwise.
func withScheme(address string) string {
	host, _, err := net.SplitHostPort(address)
	if err != nil || host == "" || strings.Contains(address, "/") {
		return address
	}
	if ip := net.ParseIP(host); host == "localhost" || ip != nil && ip.IsLoopback() {
		return "http://" + address
	}
	return "https://" + address
}

// open serves the API of a store inside this process.
func (a *app) open(ctx context.Context, url string) (*link, error) {
	if err := a.exists(url); err != nil {
		return nil, err
	}
	rt, closeStore, err := a.runtime(ctx, url, perdure.Options{})
	if err != nil {
		return nil, err
	}
	srv := server.New(rt, server.Options{})
	h, stop := inproc.Serve(srv)
	h.Transport = &asTransport{a.as, h.Transport}
	c, err := client.New("http://localhost", client.Options{HTTP: h, Attempts: -1})
	if err != nil {
		return nil, err
	}
	return &link{Client: c, runtime: rt, close: func() {
		srv.Close()
		stop()
		closeStore()
	}}, nil
}

// makers are the commands, beside dev, serve and worker, that make a store which is
// not there. To the others its name is a mistake.
const makers = " run chat import create put "

// exists returns an error if a store is not there and the command makes none.
func (a *app) exists(url string) error {
	path, ok := sqliteFile(url)
	if !ok {
		path, ok = strings.CutPrefix(strings.TrimSuffix(url, store.SharedFolder), "file:")
	}
	if _, err := os.Stat(path); !ok || !errors.Is(err, fs.ErrNotExist) || strings.Contains(makers, " "+a.verb+" ") {
		return nil
	}
	return &exitError{code: exitUnavailable, err: fmt.Errorf("there is no store %s", url), next: "check its name; perdure dev, serve, worker, run and import make new ones"}
}

// asTransport says who asks, where no token does.
type asTransport struct {
	as string
	http.RoundTripper
}

// RoundTrip sends a request.
func (t *asTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	if t.as != "" {
		r = r.Clone(r.Context())
		r.Header.Set("Perdure-As", t.as)
	}
	return t.RoundTripper.RoundTrip(r)
}

// work executes the runs of a store in this process, until it is stopped. With a
// server there is nothing to do: its workers do it.
func (l *link) work(ctx context.Context) (stop func() error) {
	if l.runtime == nil {
		return func() error { return nil }
	}
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan error, 1)
	go func() { done <- l.runtime.Work(ctx) }()
	return sync.OnceValue(func() error {
		cancel()
		return <-done
	})
}

// idle says so if nobody is there to execute runs, or those that are given.
func (l *link) idle(ctx context.Context, a *app, runs ...*perdure.Run) {
	if workers, err := l.Workers(ctx); err == nil && len(workers) == 0 {
		a.hint("no worker is alive: runs go on when one is: %s", a.command("worker", ""))
		return
	}
	for _, run := range runs {
		if run.Idle != "" {
			a.hint("no living worker has the flow %s: the run goes on when one has", safe.Label(run.Flow))
		}
	}
}

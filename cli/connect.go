package cli

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/api"
	"github.com/perdure/perdure/client"
	"github.com/perdure/perdure/internal/inproc"
	"github.com/perdure/perdure/server"
	"github.com/perdure/perdure/store"
	_ "github.com/perdure/perdure/store/filestore"   // file: URLs
	_ "github.com/perdure/perdure/store/memstore"    // memory: URLs
	_ "github.com/perdure/perdure/store/sqlitestore" // sqlite: URLs
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
// is the dev server of this machine if one runs, else the store in ./.perdure.
func (a *app) connect(ctx context.Context) (*link, error) {
	switch {
	case a.server != "" && a.store != "":
		return nil, usage(errors.New("give --server or --store, not both"))
	case a.server != "":
		return a.dial(a.server)
	case a.store != "":
		return a.open(ctx, a.store)
	}
	if l, err := a.dial("http://" + devAddress); err == nil && l.answers(ctx) {
		return l, nil
	}
	file := filepath.Join(devFolder, devFile)
	if _, err := os.Stat(file); err == nil {
		return a.open(ctx, "sqlite:"+file)
	}
	return nil, &exitError{exitUnavailable, fmt.Errorf("no server answers at %s and there is no store in ./%s; start one with perdure dev, or name one with --server or --store", devAddress, devFolder)}
}

// answers reports whether a Perdure server is there.
func (l *link) answers(ctx context.Context) bool {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	_, err := client.Do(ctx, l.Client, api.HealthGet, api.Nothing{})
	return err == nil
}

func (a *app) dial(address string) (*link, error) {
	token := a.token
	if token == "" {
		token = a.env("PERDURE_TOKEN")
	}
	c, err := client.New(address, client.Options{Token: token, HTTP: &http.Client{Transport: &asTransport{a.as, http.DefaultTransport}}, Attempts: patience})
	if err != nil {
		return nil, usage(err)
	}
	return &link{Client: c, close: func() {}}, nil
}

// open serves the API of a store inside this process.
func (a *app) open(ctx context.Context, url string) (*link, error) {
	s, err := store.Reopen(ctx, func(ctx context.Context) (store.Store, error) { return store.Open(ctx, url) })
	if err != nil {
		return nil, &exitError{exitUnavailable, fmt.Errorf("opening the store %s: %w", url, err)}
	}
	rt, err := perdure.New(ctx, s, perdure.Options{}, a.flows...)
	if err != nil {
		s.Close()
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
		s.Close()
	}}, nil
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

// idle says so if nobody is there to execute runs.
func (l *link) idle(ctx context.Context, a *app) {
	if workers, err := l.Workers(ctx); err == nil && len(workers) == 0 {
		a.hint("no worker is alive: runs go on when one is: %s", a.command("worker", ""))
	}
}

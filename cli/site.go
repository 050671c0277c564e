package cli

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"syscall"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/cli/internal/exit"
	"github.com/perdure/perdure/server"
)

// shutdownGrace is how long requests may take to end when a server stops.
const shutdownGrace = 5 * time.Second

// site is the API and a worker in one process.
type site struct {
	rt     *perdure.Runtime
	api    *server.Server
	routes func(*http.ServeMux, *perdure.Runtime) // the program's own; nil: none
	log    *slog.Logger
	worker bool // execute runs too
}

// run serves until the context ends, and then stops in order: no new streams and
// not ready, runs handed over, requests answered.
func (s *site) run(ctx context.Context, l net.Listener) error {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	h := s.api.HTTPServer()
	if s.routes != nil {
		mux := http.NewServeMux()
		mux.Handle("/", h.Handler)
		s.routes(mux, s.rt)
		h.Handler = mux
	}
	h.ErrorLog = slog.NewLogLogger(s.log.Handler(), slog.LevelWarn)
	h.ConnContext = withCaller
	served := make(chan error, 1)
	go func() {
		served <- h.Serve(l)
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

// listen takes an address. If it is taken already, the error says what to do.
func listen(ctx context.Context, address string) (net.Listener, error) {
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", address)
	if err == nil {
		return l, nil
	}
	if errors.Is(err, syscall.EADDRINUSE) {
		err = fmt.Errorf("%w: perhaps by another perdure; stop that one, or take a free port with --addr 127.0.0.1:0", err)
	}
	return nil, &exit.Error{Code: exit.Unavailable, Err: err}
}

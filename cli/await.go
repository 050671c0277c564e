package cli

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/api"
	"github.com/perdure/perdure/cli/internal/link"
	"github.com/perdure/perdure/store"
)

// How long serve and worker wait between two tries to open a store that cannot be
// reached, and how often they say so.
const (
	awaitLeast = 200 * time.Millisecond
	awaitMost  = 2 * time.Second
	awaitTold  = time.Minute
)

// awaitRuntime opens a store for a process that nobody watches. If the store's engine
// cannot be reached, as when all machines start at once, it is tried until it can.
// Errors that need a person, such as a wrong password, are returned at once, as is
// the end of the context. Failed holds why the last try failed.
func (a *app) awaitRuntime(ctx context.Context, url string, o perdure.Options, failed *atomic.Pointer[error]) (*perdure.Runtime, func(), error) {
	var told time.Time
	for pause := awaitLeast; ; pause = min(2*pause, awaitMost) {
		rt, closeStore, err := a.conn.OpenRuntime(ctx, url, o)
		if err == nil || !errors.Is(err, store.ErrUnavailable) || ctx.Err() != nil {
			return rt, closeStore, err
		}
		failed.Store(&err)
		if time.Since(told) > awaitTold {
			told = time.Now()
			o.Logger.Error("the store cannot be reached; it is tried again until it can", "store", link.StoreName(url), "error", err)
		}
		select {
		case <-ctx.Done():
			return nil, nil, ctx.Err()
		case <-time.After(pause):
		}
	}
}

// untilStopped returns the error of awaitRuntime, nil if the process was told to stop.
func untilStopped(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return nil
	}
	return err
}

// notReady serves in place of an API whose store is not open yet, because of what
// failed. Stop lets another server have the listener.
func (s *site) notReady(l net.Listener, failed *atomic.Pointer[error]) (stop func()) {
	answer := func(w http.ResponseWriter, r *http.Request) { answerNotReady(w, r, failed.Load()) }
	h := &http.Server{Handler: http.HandlerFunc(answer), ReadHeaderTimeout: shutdownGrace, MaxHeaderBytes: 32 << 10,
		ErrorLog: slog.NewLogLogger(s.log.Handler(), slog.LevelWarn)}
	h.SetKeepAlivesEnabled(false)
	served := make(chan struct{})
	go func() {
		defer close(served)
		_ = s.serve(h, &lentListener{l}) // it ends when it is stopped
	}()
	return func() {
		down, cancel := context.WithTimeout(context.Background(), shutdownGrace)
		defer cancel()
		_ = h.Shutdown(down) // who is cut off comes back
		h.Close()
		<-served
		lend(l, time.Time{})
	}
}

// answerNotReady answers as a server does whose store is not available. Why is told to
// anyone who asks only if the error has words for that.
func answerNotReady(w http.ResponseWriter, r *http.Request, why *error) {
	var answer any = &api.Health{Status: "ok"}
	status, media := http.StatusOK, "application/json"
	if r.URL.Path != "/healthz" {
		p := api.ReadProblemOf(store.ErrUnavailable) // nothing is done here, whatever the request
		var public interface{ Detail() string }
		if why != nil && errors.As(*why, &public) {
			p.Detail = public.Detail()
		}
		answer, status, media = p, p.Status, api.TypeProblem
		w.Header().Set("Retry-After", "1")
	}
	w.Header().Set("Content-Type", media)
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(answer) // the caller may be gone
}

// lentListener is a listener that stays open when a server closes it.
type lentListener struct{ net.Listener }

// Close ends the call of Accept that waits.
func (l *lentListener) Close() error { return lend(l.Listener, time.Now()) }

// lend sets the time at which a listener's Accept gives up; zero means never.
func lend(l net.Listener, until time.Time) error {
	if d, ok := l.(interface{ SetDeadline(time.Time) error }); ok {
		return d.SetDeadline(until)
	}
	return l.Close()
}

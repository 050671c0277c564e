package server

import (
	"context"
	"encoding/json"
	"iter"
	"net/http"
	"strings"

	"github.com/perdure/perdure/api"
	"github.com/perdure/perdure/internal/sse"
)

// Face is a protocol of another system that a server speaks besides its own API.
// Package adk has one.
type Face []Route

// Route is a route of a face.
type Route struct {
	// Pattern is one of http.ServeMux, with a method.
	Pattern string
	// Scope is what the caller needs. A route with api.ScopeAny checks the scopes of the
	// token itself, or leaves that to the operations that it calls by [Call.Transport].
	Scope api.Scope
	// Events sends an error as an event to clients that ask for a stream.
	Events bool
	// Serve handles an admitted request. An error that it returns before it has
	// written anything becomes a problem.
	Serve func(w http.ResponseWriter, r *http.Request, c *Call) error
}

// router is a mux that knows its patterns, so that a test can verify that every
// route goes through admit.
type router struct {
	mux      http.ServeMux
	patterns []string
}

// HandleFunc adds a route.
func (r *router) HandleFunc(pattern string, h func(http.ResponseWriter, *http.Request)) {
	r.patterns = append(r.patterns, pattern)
	r.mux.HandleFunc(pattern, h)
}

// bindRoute binds a route that is not an operation of the API. Its callers are
// admitted like those of operations.
func (s *Server) bindRoute(route Route) {
	method, path, ok := strings.Cut(route.Pattern, " ")
	if !ok {
		panic("server: the route " + route.Pattern + " names no method")
	}
	op := &api.Info{Name: route.Pattern, Method: method, Path: path, Scope: route.Scope}
	s.faces = append(s.faces, op)
	s.mux.HandleFunc(route.Pattern, func(w http.ResponseWriter, r *http.Request) {
		c, err := s.admit(w, r, op)
		if err != nil {
			s.failRoute(w, r, err, false)
			return
		}
		if err = noConditions(r); err == nil {
			err = c.names(r.PathValue("user"))
		}
		if err == nil {
			err = route.Serve(w, r, c)
		}
		if err != nil {
			s.failRoute(w, r, err, route.Events && wantsStream(r))
		}
	})
}

// noConditions refuses conditions on writes: no face supports any, and a write
// without its condition is a different write.
func noConditions(r *http.Request) error {
	for _, name := range []string{"If-Match", "If-None-Match"} {
		if r.Method != http.MethodGet && r.Method != http.MethodHead && len(r.Header.Values(name)) > 0 {
			return api.Invalid("header %s: %s does not support this condition; the routes under /v1 do", name, r.URL.Path)
		}
	}
	return nil
}

// failRoute sends an error as a problem with an additional member error, or as an
// event: that is where clients of other systems look.
func (s *Server) failRoute(w http.ResponseWriter, r *http.Request, err error, event bool) {
	p := s.problem(r, err)
	if event {
		data, _ := sse.Encode("", "", map[string]string{"error": p.Error()})
		w.Header().Set("Content-Type", api.TypeEvents)
		tell(w, p, data)
		return
	}
	data, _ := json.Marshal(struct {
		*api.Problem
		Error string `json:"error"`
	}{p, p.Error()})
	w.Header().Set("Content-Type", api.TypeProblem)
	tell(w, p, append(data, '\n'))
}

// StreamEvent is an event of [Call.Stream].
type StreamEvent struct {
	ID   api.EventID // "": none
	Data any         // encoded as JSON
}

// Stream responds with events until there are no more or ctx, which is that of
// [Call.Last], ends; the context that it passes to events ends with the response.
// An error that they yield becomes the last event. A header names the event after
// which the stream begins, so that a client that is cut off before the first event
// knows where to resume.
//
// A client that does not accept text/event-stream may understand only blocks of
// one line: it gets no ids, and comments as separate blocks.
func (c *Call) Stream(ctx context.Context, w http.ResponseWriter, r *http.Request, after api.EventID, events func(context.Context) iter.Seq2[StreamEvent, error]) error {
	st := c.s.newStream(w, after)
	defer st.end()
	if wantsStream(r) {
		st.buf = sse.AppendRetry(st.buf, c.s.opts.Retry)
	} else {
		st.apart = true
		w.WriteHeader(http.StatusOK)
		st.dirty = true
	}
	if st.flush() != nil {
		return nil // the client is gone
	}
	inner, cancel := context.WithCancel(ctx)
	ready := make(chan StreamEvent)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for e, err := range events(inner) {
			if err != nil {
				e = StreamEvent{Data: map[string]string{"error": api.ProblemOf(err).Error()}}
			}
			select {
			case ready <- e:
			case <-inner.Done():
				return
			}
			if err != nil {
				return
			}
		}
	}()
	defer func() {
		cancel()
		<-done
	}()
	over := done // ready has no buffer, so nothing is left in it then
	for {
		var err error
		select {
		case e := <-ready:
			err = st.send(e)
		case <-st.quiet.C:
			err = st.heartbeat()
		case <-over:
			if ctx.Err() == nil {
				return nil
			}
			over = nil
		case <-ctx.Done():
			if context.Cause(ctx) == api.ErrStopping {
				st.bye()
			}
			return nil
		}
		if err != nil {
			return nil
		}
	}
}

// send writes an event at once.
func (st *stream) send(e StreamEvent) error {
	if st.apart {
		e.ID = ""
	}
	if err := st.encode(e.ID, "", e.Data); err != nil {
		return err
	}
	return st.flush()
}

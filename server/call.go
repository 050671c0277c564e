package server

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/agent/memory"
	"github.com/perdure/perdure/api"
)

// Call is a request that has been admitted.
type Call struct {
	// Runtime is limited to the caller's tenant and, if the caller acts for one
	// user, to that user's threads.
	Runtime *perdure.Runtime
	// Who makes the request.
	Who *Principal

	s       *Server
	header  http.Header // of the answer
	about   *outcome    // nil without a connection
	load    *load
	still   who                         // looks the caller up again
	recheck func(context.Context) error // whether the caller may still do what was admitted
	expires time.Time                   // when the caller's token expires, as far as known; zero: never
}

// Version returns Options.Version.
func (c *Call) Version() string { return c.s.opts.Version }

// About notes the thread that the response is about, for its header.
func (c *Call) About(thread string) {
	if c.about != nil {
		c.about.thread = thread
	}
}

// Hold counts bytes of a response under construction against the limits of the
// caller, until the request ends.
func (c *Call) Hold(bytes int) error { return c.load.hold(bytes) }

// Send responds with a value as JSON.
func (c *Call) Send(w http.ResponseWriter, status int, v any) error {
	data, err := json.Marshal(v)
	if err == nil {
		err = c.load.hold(len(data))
	}
	if err != nil {
		return err
	}
	w.Header().Set("Content-Type", api.TypeJSON)
	w.Header().Set("Content-Length", strconv.Itoa(len(data)+1))
	w.WriteHeader(status)
	if _, err = w.Write(data); err == nil { // otherwise the caller is gone
		io.WriteString(w, "\n")
	}
	return nil
}

// MayRead returns an error if the caller lacks the scope read, for responses that
// consist of events only.
func (c *Call) MayRead() error {
	if !c.Who.May(api.ScopeRead) {
		return fmt.Errorf("%w: the response shows events, which also needs the scope %s; POST /v1/threads/{thread}/runs returns a receipt instead", api.ErrScope, api.ScopeRead)
	}
	return nil
}

// Last marks the request as one that stays open until something happens: it counts as
// a stream until leave is called. The returned context ends, with the cause, when the
// server stops or the caller may no longer make the request.
func (c *Call) Last(ctx context.Context) (lasting context.Context, leave func(), err error) {
	done, err := c.s.admitStream(c)
	if err != nil {
		return nil, nil, err
	}
	lasting, cancel := context.WithCancelCause(ctx)
	go func() {
		watch := c.watch()
		defer watch.Stop()
		for {
			select {
			case <-watch.C:
				if err := watch.recheck(lasting); err != nil {
					cancel(err)
					return
				}
			case <-c.s.stop:
				cancel(api.ErrStopping)
				return
			case <-lasting.Done():
				return
			}
		}
	}()
	return lasting, func() {
		cancel(nil)
		done()
	}, nil
}

// names returns an error if a caller who is limited to one user names another.
func (c *Call) names(user string) error {
	if c.Who.User != "" && user != "" && user != c.Who.User {
		return fmt.Errorf("%w: it is only for the threads of %.80q", api.ErrScope, c.Who.User)
	}
	return nil
}

// sendOrReceipt responds with a value, or with a receipt for it if the caller may
// not read: no scope includes another, and the response to a write is a read.
func (c *Call) sendOrReceipt(w http.ResponseWriter, status int, v any) error {
	if c.Who != nobody && !c.Who.May(api.ScopeRead) { // operations without a token return nothing of a tenant's
		short, known := receipt(v)
		if !known {
			return fmt.Errorf("server: there is no receipt for a %T", v)
		}
		v = short
	}
	return c.Send(w, status, v)
}

// receipt returns the part of a response for callers who may not read: ids,
// statuses and sequences. Known is false if none is defined for its type.
func receipt(v any) (short any, known bool) {
	switch v := v.(type) {
	case *perdure.Thread:
		return &perdure.Thread{ID: v.ID, Tenant: v.Tenant, User: v.User, Created: v.Created, Updated: v.Updated, Seq: v.Seq, Status: v.Status}, true
	case *perdure.Run:
		return runReceipt(v), true
	case *api.Resumed:
		return &api.Resumed{Run: runReceipt(v.Run), Resumed: v.Resumed}, true
	case *perdure.AskInfo:
		short := askReceipt(*v)
		return &short, true
	case *api.AskList:
		short := &api.AskList{Asks: []perdure.AskInfo{}}
		for _, a := range v.Asks {
			short.Asks = append(short.Asks, askReceipt(a))
		}
		return short, true
	case *perdure.Fork:
		return &perdure.Fork{Thread: v.Thread, From: v.From, At: v.At}, true
	case *perdure.Rewound:
		return &perdure.Rewound{Thread: v.Thread, To: v.To, Seq: v.Seq}, true
	case *perdure.Upload:
		return v, true // the caller has just sent it
	case *perdure.Bulk:
		return &perdure.Bulk{ID: v.ID, Verb: v.Verb, Rate: v.Rate, State: v.State, Created: v.Created, Updated: v.Updated, Ended: v.Ended}, true
	case *api.Schedule:
		return &api.Schedule{Schedule: perdure.Schedule{ID: v.ID, Flow: v.Flow, Paused: v.Paused, Created: v.Created, Updated: v.Updated,
			CatchUp: v.CatchUp, CatchUpMax: v.CatchUpMax, Overlap: v.Overlap, Next: v.Next, Fired: v.Fired}}, true
	case *memory.Item:
		return &memory.Item{Namespace: v.Namespace, Key: v.Key, Version: v.Version}, true
	}
	return nil, false
}

func runReceipt(r *perdure.Run) *perdure.Run {
	if r == nil {
		return nil
	}
	return &perdure.Run{Thread: r.Thread, ID: r.ID, Seq: r.Seq, Flow: r.Flow, Status: r.Status, Created: r.Created, Started: r.Started, Ended: r.Ended}
}

func askReceipt(a perdure.AskInfo) perdure.AskInfo {
	return perdure.AskInfo{ID: a.ID, Thread: a.Thread, Run: a.Run, Status: a.Status, Asked: a.Asked}
}

package server

import (
	"encoding/json"
	"fmt"
	"net/http"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/agent/memory"
	"github.com/perdure/perdure/api"
)

// send answers with a value, or with a receipt for it if the caller may not
// read: scopes do not contain each other, and what a write answers with is read.
func (c *call) send(w http.ResponseWriter, status int, v any) error {
	if c.who != nobody && !c.who.May(api.ScopeRead) { // what nobody may ask is nothing of a tenant's
		short, known := receipt(v)
		if !known {
			return fmt.Errorf("server: there is no receipt for a %T", v)
		}
		v = short
	}
	return send(w, status, v)
}

// receipt returns what is told of an answer to those who may not read: ids,
// statuses and sequences. Known is false if nobody has said what that is.
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
	case *memory.Item:
		return &memory.Item{Namespace: v.Namespace, Key: v.Key, Version: v.Version}, true
	case *adkSession:
		return &adkSession{ID: v.ID, App: v.App, User: v.User, State: map[string]json.RawMessage{}, Events: []*adkEvent{}, Updated: v.Updated}, true
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

// reading makes a face need the scope read besides its own, since it answers
// with what happens on a thread.
func reading(fn func(http.ResponseWriter, *http.Request, *call) error) func(http.ResponseWriter, *http.Request, *call) error {
	return func(w http.ResponseWriter, r *http.Request, c *call) error {
		if err := c.mayRead(); err != nil {
			return err
		}
		return fn(w, r, c)
	}
}

// mayRead is for answers that are nothing without what they show.
func (c *call) mayRead() error {
	if !c.who.May(api.ScopeRead) {
		return fmt.Errorf("%w: the answer shows events, which needs the scope %s too; POST /v1/threads/{thread}/runs answers with a receipt", api.ErrScope, api.ScopeRead)
	}
	return nil
}

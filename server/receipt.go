package server

import (
	"fmt"
	"net/http"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/agent/memory"
	"github.com/perdure/perdure/api"
)

// sendOrReceipt answers with a value, or with a receipt for it if the caller may not
// read: scopes do not contain each other, and what a write answers with is read.
func (c *Call) sendOrReceipt(w http.ResponseWriter, status int, v any) error {
	if c.Who != nobody && !c.Who.May(api.ScopeRead) { // what nobody may ask is nothing of a tenant's
		short, known := receipt(v)
		if !known {
			return fmt.Errorf("server: there is no receipt for a %T", v)
		}
		v = short
	}
	return c.Send(w, status, v)
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

package perdure

import (
	"context"
	"encoding/json"
	"time"

	"github.com/perdure/perdure/internal/clock"
	"github.com/perdure/perdure/internal/journal"
	"github.com/perdure/perdure/internal/threads"
	"github.com/perdure/perdure/internal/tree"
)

// What may have become of an ask.
const (
	AskOpen     = "open"
	AskAnswered = "answered"
	AskExpired  = "expired"
	AskClosed   = "closed" // its run or step ended without it
)

// AskInfo is an ask as the outside sees it: see [Question].
type AskInfo struct {
	ID        string                     `json:"id"` // for AskAnswer
	Thread    string                     `json:"thread"`
	Run       string                     `json:"run"`
	Path      string                     `json:"path"`
	Status    string                     `json:"status"` // AskOpen, AskAnswered, AskExpired or AskClosed
	Kind      string                     `json:"kind,omitempty"`
	Prompt    string                     `json:"prompt,omitempty"`
	Data      json.RawMessage            `json:"data,omitempty"`
	Schema    json.RawMessage            `json:"schema,omitempty"`
	Schemas   map[string]json.RawMessage `json:"schemas,omitempty"` // by decision, in place of Schema
	Want      string                     `json:"want,omitempty"`    // kind of JSON value that is expected, "" for any
	Decisions []string                   `json:"decisions,omitempty"`
	Guards    string                     `json:"guards,omitempty"`
	Who       []string                   `json:"who,omitempty"`
	Asked     time.Time                  `json:"asked"`
	Expires   time.Time                  `json:"expires,omitzero"`
	Progress  int                        `json:"progress,omitempty"` // how much news there is
	Answer    *Answer                    `json:"answer,omitempty"`   // that it got, also the default when it expired; its Value is a json.RawMessage
}

// GetAsk returns an ask by its id, open or over. One whose time is over is
// expired; its answer follows when a worker records that. One that a rewind took back is
// ErrNoAsk, as is one that never was; that of an erased thread is ErrErased.
func (r *Runtime) GetAsk(ctx context.Context, id string) (*AskInfo, error) {
	o, a, err := r.tenant.ReadAsk(ctx, id)
	if err != nil {
		return nil, err
	}
	info, err := r.askInfo(ctx, o, a)
	if err != nil {
		return nil, err
	}
	return &info, nil
}

func (r *Runtime) askInfo(ctx context.Context, o *threads.Opened, a *journal.Ask) (AskInfo, error) {
	q := a.Question
	data, err := r.core.threads.Load(ctx, o.Name, q.Data)
	info := AskInfo{ID: threads.AskID(o.Name, a.ID), Thread: o.Thread.ID, Run: a.Run.ID, Path: tree.Names(a.Path), Kind: q.Kind, Status: askStatus(a),
		Prompt: q.Prompt, Data: data, Schema: q.Schema, Schemas: q.Schemas, Want: q.Want, Decisions: q.Decisions, Guards: q.Guards,
		Who: q.Who, Asked: clock.Stamp(a.Time), Expires: clock.Stamp(a.Due), Progress: len(a.Progress)}
	if err != nil || a.Answer == nil {
		return info, err
	}
	info.Answer = &Answer{Decision: a.Answer.Decision, Message: a.Answer.Message, By: a.Answer.By, Expired: a.Expired, Time: clock.Stamp(a.AnswerAt)}
	raw, err := r.core.threads.Load(ctx, o.Name, a.Answer.Value)
	if raw != nil {
		info.Answer.Value = json.RawMessage(raw)
	}
	return info, err
}

func askStatus(a *journal.Ask) string {
	switch {
	case a.Expired, a.Open() && !threads.Answerable(a):
		return AskExpired
	case a.Answer != nil:
		return AskAnswered
	case a.Closed:
		return AskClosed
	}
	return AskOpen
}

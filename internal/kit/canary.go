package kit

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/base32"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/store"
)

// Canary is 256 random bits that a user gives in every field there is.
type Canary struct {
	Raw  []byte
	text string // has a quote in its middle, which JSON escapes

	mu     sync.Mutex
	fields map[string]bool
}

// NewCanary returns a new one.
func NewCanary() *Canary {
	c := &Canary{Raw: make([]byte, 32), fields: map[string]bool{}}
	rand.Read(c.Raw)
	text := base32.StdEncoding.WithPadding(base32.NoPadding).EncodeToString(c.Raw)
	c.text = text[:26] + `"` + text[26:]
	return c
}

// In returns the canary for a field, which it remembers.
func (c *Canary) In(field string) string {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.fields[field] = true
	return c.text + "-" + field + "."
}

// Plain returns a form of the canary for fields that allow neither quotes nor more than
// some dozens of characters.
func (c *Canary) Plain() string { return c.text[:26] }

// Fields returns the fields that the canary was given for.
func (c *Canary) Fields() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Sorted(maps.Keys(c.fields))
}

// needles are the forms in which a part of the canary may be somewhere.
func (c *Canary) needles() [][]byte {
	var all [][]byte
	for _, part := range [][]byte{[]byte(c.text[:26]), []byte(c.text[27:]), c.Raw[:16], c.Raw[16:]} {
		all = append(all, part, []byte(hex.EncodeToString(part)), []byte(strings.ToUpper(hex.EncodeToString(part))))
		for shift := range 3 { // base64 of it in the middle of something else
			whole := part[shift:]
			whole = whole[:len(whole)/3*3]
			all = append(all, []byte(base64.StdEncoding.EncodeToString(whole)), []byte(base64.URLEncoding.EncodeToString(whole)))
		}
		quoted, _ := json.Marshal(string(part))
		all = append(all, bytes.Trim(quoted, `"`))
	}
	return all
}

// FoundIn reports whether the canary is in some bytes.
func (c *Canary) FoundIn(data []byte) bool {
	for _, n := range c.needles() {
		if bytes.Contains(data, n) {
			return true
		}
	}
	return false
}

// FoundBelow returns the files below a folder in whose name or bytes the canary
// is.
func (c *Canary) FoundBelow(t *testing.T, dir string) []string {
	t.Helper()
	var found []string
	files := 0
	err := filepath.WalkDir(dir, func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		files++
		if d.Type() == fs.ModeSocket { // it holds no bytes, but has a name
			if c.FoundIn([]byte(name)) {
				found = append(found, name)
			}
			return nil
		}
		data, err := os.ReadFile(name)
		if c.FoundIn(data) || c.FoundIn([]byte(name)) {
			found = append(found, name)
		}
		return err
	})
	if err != nil || files == 0 {
		t.Fatalf("scanned %d files: %v", files, err)
	}
	return found
}

// diary is a dep that holds what it was given.
type diary struct{ Line string }

// Dump implements perdure.Resumable.
func (d *diary) Dump(context.Context) (json.RawMessage, error) { return json.Marshal(d) }

// Load implements perdure.Resumable.
func (d *diary) Load(_ context.Context, s json.RawMessage) error { return json.Unmarshal(s, d) }

// Accepting is a validator that accepts everything.
type Accepting struct{}

// Validate implements perdure.Validator.
func (Accepting) Validate(json.RawMessage, json.RawMessage) error { return nil }

// Flow is a flow that has the canary in all that it records.
func (c *Canary) Flow(name string) perdure.Flow {
	dep := perdure.NewDep(c.In("dep"), func(context.Context) (*diary, error) { return &diary{}, nil }, perdure.Shared())
	return perdure.NewFlow(name, func(ctx context.Context, in map[string]string) (string, error) {
		if in["fail"] != "" {
			return "", errors.New(c.In("failure of the run"))
		}
		var errs []error
		try := func(err error) { errs = append(errs, err) }
		try(perdure.Plan(ctx, c.In("plan")))
		try(perdure.Emit(ctx, c.In("name of an event"), c.In("event")))
		_, err := perdure.Step(ctx, c.In("name of a step"), func(ctx context.Context) (any, error) {
			d, err := dep.Get(ctx)
			if err == nil {
				d.Line = c.In("dump")
			}
			return map[string]any{c.In("key of a result"): c.In("result"), "bytes": c.Raw, "large": Large + c.In("large result")}, errors.Join(err,
				perdure.NewState[string](c.In("key of state")).Set(ctx, c.In("state")),
				perdure.NewState[string]("large").Set(ctx, Large+c.In("large state")),
				perdure.NewFact[string](c.In("key of a fact")).Set(ctx, c.In("fact")),
				perdure.NewCounter(c.In("counter")).Add(ctx, 1),
				perdure.NewList[string](c.In("key of a list")).Append(ctx, c.In("item")),
				perdure.Spend(ctx, c.In("unit"), 1))
		})
		try(err)
		_, err = perdure.Step(ctx, "panics", func(context.Context) (bool, error) { panic(c.In("panic")) })
		if !errors.Is(err, perdure.ErrPanic) {
			try(err)
		}
		_, err = perdure.Step(ctx, "fails", func(context.Context) (bool, error) {
			return false, perdure.Coded(c.In("code"), errors.New(c.In("error")))
		}, perdure.Retry(perdure.RetryPolicy{Attempts: 2, Wait: time.Millisecond}))
		if err == nil {
			try(errors.New("no error"))
		}
		_, err = perdure.Scope(ctx, c.In("scope"), func(ctx context.Context) (bool, error) {
			return true, perdure.Sleep(ctx, "nap", time.Millisecond)
		})
		try(err)
		_, err = perdure.Ask[string](ctx, c.In("name of an ask"), perdure.Question{Kind: c.In("kind"), Prompt: c.In("prompt"), Data: []string{c.In("data"), Large},
			Schema: json.RawMessage(`{"title":` + quote(c.In("schema")) + `}`), Decisions: []string{c.In("decision")}, Guards: c.In("guards"),
			Who: []string{c.In("who")}, Expires: time.Hour, Default: &perdure.Answer{Decision: c.In("decision"), Value: c.In("default")}})
		try(err)
		_, err = perdure.Receive[string](ctx, "receive", c.In("signal"), 0)
		try(err)
		_, _, err = perdure.Take[map[string]string](ctx, "take")
		try(err)
		err = perdure.Cleanup(ctx, c.In("cleanup"), func(context.Context) error { return errors.New(c.In("failure of a cleanup")) })
		if err == nil {
			try(errors.New("no error"))
		}
		if err := errors.Join(errs...); err != nil {
			return "", err
		}
		return c.In("output"), nil
	})
}

func quote(s string) string {
	q, _ := json.Marshal(s)
	return string(q)
}

// Live brings a thread through everything there is.
func (c *Canary) Live(t *testing.T, rt *perdure.Runtime, flow string) {
	t.Helper()
	ctx := t.Context()
	must := func(err error) {
		t.Helper()
		NoErr(t, err)
	}
	start := func(policy perdure.Policy, in map[string]string) string {
		run, err := rt.Start(ctx, perdure.StartRequest{Flow: flow, Input: in, Thread: c.In("thread"), Title: c.In("title"), User: c.In("user"),
			Metadata: map[string]string{c.In("key of metadata"): c.In("metadata")}, Key: c.text + in["key"], Policy: policy,
			Budget: map[string]int64{c.In("unit of a budget"): 1}, Trace: c.In("trace"), By: c.In("who started")})
		must(err)
		return run.ID
	}
	run := start("", map[string]string{"small": c.In("input"), "large": Large + c.In("large input")})
	info, err := rt.Wait(ctx, c.In("thread"), run)
	must(err)
	if len(info.Asks) != 1 {
		t.Fatalf("the run is %s: %s %s", info.Status, info.Error, info.Diff)
	}
	must(rt.Progress(ctx, info.Asks[0].ID, c.In("progress"), perdure.Note{}))
	start(perdure.Steer, map[string]string{"steer": c.In("steering"), "key": "steer"})
	must(rt.Pause(ctx, c.In("thread"), run, perdure.Note{By: c.In("who paused"), Reason: c.In("why paused")}))
	must(rt.Resume(ctx, c.In("thread"), run, perdure.Note{By: c.In("who resumed"), Reason: c.In("why resumed")}))
	must(rt.Answer(ctx, perdure.AskAnswer{Ask: info.Asks[0].ID, Answer: perdure.Answer{Decision: c.In("decision"), Value: c.In("answer"), Message: c.In("message"), By: c.In("who")}}))
	must(rt.Signal(ctx, c.In("thread"), c.In("signal"), c.In("value of a signal"), perdure.SignalOptions{Key: c.In("key of a signal"), By: c.In("who signals")}))
	info, err = rt.WaitEnd(ctx, c.In("thread"), run)
	must(err)
	if info.Status != perdure.Succeeded {
		t.Fatalf("the run is %s: %s %s", info.Status, info.Error, info.Diff)
	}
	must(rt.SetMetadata(ctx, c.In("thread"), nil, map[string]string{"later": c.In("later metadata")}, perdure.Note{}))
	failed := start("", map[string]string{"fail": "yes", "key": "fail"})
	_, err = rt.WaitEnd(ctx, c.In("thread"), failed)
	must(err)
	must(rt.Retry(ctx, c.In("thread"), failed, perdure.Note{By: c.In("who retried"), Reason: c.In("why retried")}))
	_, err = rt.WaitEnd(ctx, c.In("thread"), failed)
	must(err)
	waits := start("", map[string]string{"key": "cancelled"})
	_, err = rt.Wait(ctx, c.In("thread"), waits)
	must(err)
	must(rt.Signal(ctx, c.In("thread"), "unheard", Large+c.In("large signal"), perdure.SignalOptions{}))
	must(rt.Cancel(ctx, c.In("thread"), waits, perdure.Note{By: c.In("who cancelled"), Reason: c.In("why cancelled")}))
	_, err = rt.WaitEnd(ctx, c.In("thread"), waits)
	must(err)
	start("", map[string]string{"key": "left waiting"})
	_, err = rt.Wait(ctx, c.In("thread"), "")
	must(err)
}

// Contents returns all bytes that a store holds, and all names.
func Contents(t *testing.T, s store.Store) (data, names []byte) {
	t.Helper()
	for cell, err := range s.List(t.Context(), "", "") {
		NoErr(t, err)
		data, names = append(data, cell.Value...), append(names, cell.Key+"\n"...)
	}
	for name, err := range s.Journals(t.Context(), "") {
		NoErr(t, err)
		names = append(names, name+"\n"...)
		entries, err := store.ReadAll(t.Context(), s, name, 0)
		NoErr(t, err)
		for _, e := range entries {
			data = append(data, e.Data...)
		}
	}
	return data, names
}

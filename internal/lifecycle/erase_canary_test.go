package lifecycle_test

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
	"github.com/perdure/perdure/internal/kit"
	"github.com/perdure/perdure/internal/pgtest"
	"github.com/perdure/perdure/store"
	"github.com/perdure/perdure/store/filestore"
	"github.com/perdure/perdure/store/pgstore"
	"github.com/perdure/perdure/store/sqlitestore"
)

// canary is 256 random bits that a user gives in every field there is.
type canary struct {
	raw  []byte
	text string // has a quote in its middle, which JSON escapes

	mu     sync.Mutex
	fields map[string]bool
}

func newCanary() *canary {
	c := &canary{raw: make([]byte, 32), fields: map[string]bool{}}
	rand.Read(c.raw)
	text := base32.StdEncoding.WithPadding(base32.NoPadding).EncodeToString(c.raw)
	c.text = text[:26] + `"` + text[26:]
	return c
}

// in returns the canary for a field, which it remembers.
func (c *canary) in(field string) string {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.fields[field] = true
	return c.text + "-" + field + "."
}

// needles are the forms in which a part of the canary may be somewhere.
func (c *canary) needles() [][]byte {
	var all [][]byte
	for _, part := range [][]byte{[]byte(c.text[:26]), []byte(c.text[27:]), c.raw[:16], c.raw[16:]} {
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

func (c *canary) foundIn(data []byte) bool {
	for _, n := range c.needles() {
		if bytes.Contains(data, n) {
			return true
		}
	}
	return false
}

// foundBelow returns the files below a folder in whose name or bytes the canary
// is.
func (c *canary) foundBelow(t *testing.T, dir string) []string {
	t.Helper()
	var found []string
	files := 0
	err := filepath.WalkDir(dir, func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		files++
		if d.Type() == fs.ModeSocket { // it holds no bytes, but has a name
			if c.foundIn([]byte(name)) {
				found = append(found, name)
			}
			return nil
		}
		data, err := os.ReadFile(name)
		if c.foundIn(data) || c.foundIn([]byte(name)) {
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

func (d *diary) Dump(context.Context) (json.RawMessage, error) { return json.Marshal(d) }

func (d *diary) Load(_ context.Context, s json.RawMessage) error { return json.Unmarshal(s, d) }

type accepting struct{}

func (accepting) Validate(json.RawMessage, json.RawMessage) error { return nil }

// flow is a flow that has the canary in all that it records.
func (c *canary) flow(name string) perdure.Flow {
	dep := perdure.NewDep(c.in("dep"), func(context.Context) (*diary, error) { return &diary{}, nil }, perdure.Shared())
	return perdure.NewFlow(name, func(ctx context.Context, in map[string]string) (string, error) {
		if in["fail"] != "" {
			return "", errors.New(c.in("failure of the run"))
		}
		var errs []error
		try := func(err error) { errs = append(errs, err) }
		try(perdure.Plan(ctx, c.in("plan")))
		try(perdure.Emit(ctx, c.in("name of an event"), c.in("event")))
		_, err := perdure.Step(ctx, c.in("name of a step"), func(ctx context.Context) (any, error) {
			d, err := dep.Get(ctx)
			if err == nil {
				d.Line = c.in("dump")
			}
			return map[string]any{c.in("key of a result"): c.in("result"), "bytes": c.raw, "large": kit.Large + c.in("large result")}, errors.Join(err,
				perdure.NewState[string](c.in("key of state")).Set(ctx, c.in("state")),
				perdure.NewState[string]("large").Set(ctx, kit.Large+c.in("large state")),
				perdure.NewFact[string](c.in("key of a fact")).Set(ctx, c.in("fact")),
				perdure.NewCounter(c.in("counter")).Add(ctx, 1),
				perdure.NewList[string](c.in("key of a list")).Append(ctx, c.in("item")),
				perdure.Spend(ctx, c.in("unit"), 1))
		})
		try(err)
		_, err = perdure.Step(ctx, "panics", func(context.Context) (bool, error) { panic(c.in("panic")) })
		if !errors.Is(err, perdure.ErrPanic) {
			try(err)
		}
		_, err = perdure.Step(ctx, "fails", func(context.Context) (bool, error) {
			return false, perdure.Coded(c.in("code"), errors.New(c.in("error")))
		}, perdure.Retry(perdure.RetryPolicy{Attempts: 2, Wait: time.Millisecond}))
		if err == nil {
			try(errors.New("no error"))
		}
		_, err = perdure.Scope(ctx, c.in("scope"), func(ctx context.Context) (bool, error) {
			return true, perdure.Sleep(ctx, "nap", time.Millisecond)
		})
		try(err)
		_, err = perdure.Ask[string](ctx, c.in("name of an ask"), perdure.Question{Kind: c.in("kind"), Prompt: c.in("prompt"), Data: []string{c.in("data"), kit.Large},
			Schema: json.RawMessage(`{"title":` + quote(c.in("schema")) + `}`), Decisions: []string{c.in("decision")}, Guards: c.in("guards"),
			Who: []string{c.in("who")}, Expires: time.Hour, Default: &perdure.Answer{Decision: c.in("decision"), Value: c.in("default")}})
		try(err)
		_, err = perdure.Receive[string](ctx, "receive", c.in("signal"), 0)
		try(err)
		_, _, err = perdure.Take[map[string]string](ctx, "take")
		try(err)
		err = perdure.Cleanup(ctx, c.in("cleanup"), func(context.Context) error { return errors.New(c.in("failure of a cleanup")) })
		if err == nil {
			try(errors.New("no error"))
		}
		if err := errors.Join(errs...); err != nil {
			return "", err
		}
		return c.in("output"), nil
	})
}

func quote(s string) string {
	q, _ := json.Marshal(s)
	return string(q)
}

// live brings a thread through everything there is.
func (c *canary) live(t *testing.T, rt *perdure.Runtime, flow string) {
	t.Helper()
	ctx := t.Context()
	must := func(err error) {
		t.Helper()
		kit.NoErr(t, err)
	}
	start := func(policy perdure.Policy, in map[string]string) string {
		run, err := rt.Start(ctx, perdure.StartRequest{Flow: flow, Input: in, Thread: c.in("thread"), Title: c.in("title"), User: c.in("user"),
			Metadata: map[string]string{c.in("key of metadata"): c.in("metadata")}, Key: c.text + in["key"], Policy: policy,
			Budget: map[string]int64{c.in("unit of a budget"): 1}, Trace: c.in("trace"), By: c.in("who started")})
		must(err)
		return run.ID
	}
	run := start("", map[string]string{"small": c.in("input"), "large": kit.Large + c.in("large input")})
	info, err := rt.Wait(ctx, c.in("thread"), run)
	must(err)
	if len(info.Asks) != 1 {
		t.Fatalf("the run is %s: %s %s", info.Status, info.Error, info.Diff)
	}
	must(rt.Progress(ctx, info.Asks[0].ID, c.in("progress"), perdure.Note{}))
	start(perdure.Steer, map[string]string{"steer": c.in("steering"), "key": "steer"})
	must(rt.Pause(ctx, c.in("thread"), run, perdure.Note{By: c.in("who paused"), Reason: c.in("why paused")}))
	must(rt.Resume(ctx, c.in("thread"), run, perdure.Note{By: c.in("who resumed"), Reason: c.in("why resumed")}))
	must(rt.Answer(ctx, perdure.AskAnswer{Ask: info.Asks[0].ID, Answer: perdure.Answer{Decision: c.in("decision"), Value: c.in("answer"), Message: c.in("message"), By: c.in("who")}}))
	must(rt.Signal(ctx, c.in("thread"), c.in("signal"), c.in("value of a signal"), perdure.SignalOptions{Key: c.in("key of a signal"), By: c.in("who signals")}))
	info, err = rt.WaitEnd(ctx, c.in("thread"), run)
	must(err)
	if info.Status != perdure.Succeeded {
		t.Fatalf("the run is %s: %s %s", info.Status, info.Error, info.Diff)
	}
	must(rt.SetMetadata(ctx, c.in("thread"), nil, map[string]string{"later": c.in("later metadata")}, perdure.Note{}))
	failed := start("", map[string]string{"fail": "yes", "key": "fail"})
	_, err = rt.WaitEnd(ctx, c.in("thread"), failed)
	must(err)
	must(rt.Retry(ctx, c.in("thread"), failed, perdure.Note{By: c.in("who retried"), Reason: c.in("why retried")}))
	_, err = rt.WaitEnd(ctx, c.in("thread"), failed)
	must(err)
	waits := start("", map[string]string{"key": "cancelled"})
	_, err = rt.Wait(ctx, c.in("thread"), waits)
	must(err)
	must(rt.Signal(ctx, c.in("thread"), "unheard", kit.Large+c.in("large signal"), perdure.SignalOptions{}))
	must(rt.Cancel(ctx, c.in("thread"), waits, perdure.Note{By: c.in("who cancelled"), Reason: c.in("why cancelled")}))
	_, err = rt.WaitEnd(ctx, c.in("thread"), waits)
	must(err)
	start("", map[string]string{"key": "left waiting"})
	_, err = rt.Wait(ctx, c.in("thread"), "")
	must(err)
}

// contents returns all bytes that a store holds, and all names.
func contents(t *testing.T, s store.Store) (data, names []byte) {
	t.Helper()
	for cell, err := range s.List(t.Context(), "", "") {
		kit.NoErr(t, err)
		data, names = append(data, cell.Value...), append(names, cell.Key+"\n"...)
	}
	for name, err := range s.Journals(t.Context(), "") {
		kit.NoErr(t, err)
		names = append(names, name+"\n"...)
		entries, err := store.ReadAll(t.Context(), s, name, 0)
		kit.NoErr(t, err)
		for _, e := range entries {
			data = append(data, e.Data...)
		}
	}
	return data, names
}

// Nothing that a user gave is in a name, and none of it is in any file when a
// thread was erased, while its neighbours stay as they are. For PostgreSQL's files
// nothing is promised, see package pgstore.
func TestNothingOfAnErasedThreadIsLeftInAnyFile(t *testing.T) {
	for name, open := range map[string]func(dir string) (store.Store, error){
		"sqlite": func(dir string) (store.Store, error) {
			return sqlitestore.Open(t.Context(), filepath.Join(dir, "db"), sqlitestore.Options{})
		},
		"file": func(dir string) (store.Store, error) {
			return filestore.Open(t.Context(), filepath.Join(dir, "store"), filestore.Options{NoSync: true})
		},
		"postgres": func(dir string) (store.Store, error) {
			return pgstore.Open(t.Context(), pgtest.Schema(pgtest.URL(t), dir), pgstore.Options{})
		},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			s, err := open(dir)
			kit.NoErr(t, err)
			gone, stays := newCanary(), newCanary()
			t.Cleanup(func() { s.Close() })
			k := kit.New(t, s, perdure.Options{Validator: accepting{}}, gone.flow("gone"), stays.flow("stays"))
			of := k.Tenant(gone.in("tenant"))
			gone.live(t, of, "gone")
			stays.live(t, k.Tenant(stays.in("tenant")), "stays")

			data, names := contents(t, s)
			if gone.foundIn(names) || stays.foundIn(names) {
				t.Error("names of cells or journals hold what a user gave")
			}
			text := strings.ReplaceAll(string(data), `\"`, `"`)
			for _, field := range slices.Sorted(maps.Keys(gone.fields)) {
				if !strings.Contains(text, gone.in(field)) {
					t.Errorf("%s was never written: its erasure shows nothing", field)
				}
			}
			if len(gone.fields) < 50 {
				t.Errorf("only %d fields were given", len(gone.fields))
			}

			kit.NoErr(t, of.Erase(t.Context(), gone.in("thread"), perdure.EraseOptions{Note: perdure.Note{By: gone.in("who erased"), Reason: gone.in("why erased")}}))
			if data, names := contents(t, s); gone.foundIn(data) || gone.foundIn(names) || !stays.foundIn(data) {
				t.Error("the store holds the wrong thread")
			}
			if _, err := k.Tenant(stays.in("tenant")).Get(t.Context(), stays.in("thread")); err != nil {
				t.Errorf("the other thread: %v", err)
			}
			if name == "postgres" { // there are no files below
				return
			}
			if found := gone.foundBelow(t, dir); len(found) > 0 {
				t.Errorf("when Erase has returned, it is in %q", found)
			}
			k.Stop()
			kit.NoErr(t, s.Close())
			if found := gone.foundBelow(t, dir); len(found) > 0 {
				t.Errorf("after Close it is in %q", found)
			}
			// The scan can find: sqlitestore masks what it holds, so there in
			// a file that is not masked.
			if name == "sqlite" {
				kit.NoErr(t, os.WriteFile(filepath.Join(dir, "control"), []byte("..."+base64.StdEncoding.EncodeToString(append([]byte("x"), stays.raw...))), 0o666))
			}
			if found := stays.foundBelow(t, dir); len(found) == 0 {
				t.Error("the scan finds nothing of the thread that stays")
			}
		})
	}
}

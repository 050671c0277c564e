package vault_test

import (
	"encoding/json"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/kit"
	"github.com/perdure/perdure/store"
	"github.com/perdure/perdure/store/filestore"
	"github.com/perdure/perdure/store/memstore"
	"github.com/perdure/perdure/store/seal"
	"github.com/perdure/perdure/store/sqlitestore"
)

// canary is in inputs, outputs and metadata; no part of it may stay where it does not
// belong.
const canary = "canary-7f3a91"

// stores are the stores on which round trips run.
func stores(t *testing.T) map[string]store.Store {
	ring, err := seal.NewRing("k", map[string][]byte{"k": []byte(strings.Repeat("k", 32))})
	kit.NoErr(t, err)
	sealed, err := seal.New(t.Context(), memstore.New(), ring)
	kit.NoErr(t, err)
	file, err := filestore.Open(t.Context(), filepath.Join(t.TempDir(), "store"), filestore.Options{})
	kit.NoErr(t, err)
	sqlite, err := sqlitestore.Open(t.Context(), filepath.Join(t.TempDir(), "store.db"), sqlitestore.Options{})
	kit.NoErr(t, err)
	t.Cleanup(func() { file.Close(); sqlite.Close() })
	return map[string]store.Store{"memstore": memstore.New(), "without batches": kit.Plain(memstore.New()), "sealed": sealed, "filestore": file, "sqlitestore": sqlite}
}

// TestRestoredIsTheSameThread archives and restores a thread with runs that succeeded,
// were allowed by a person and failed, with state, a dep, metadata and values of some
// MiB. What comes back is the same to the last byte, and goes on as if it had never been
// away.
func TestRestoredIsTheSameThread(t *testing.T) {
	for name, s := range stores(t) {
		t.Run(name, func(t *testing.T) {
			p := newPlace()
			k := kit.New(t, s, perdure.Options{Archive: p}, flows()...)
			run := k.MustStart(perdure.StartRequest{Thread: "t", Flow: "ledger", Input: canary, Title: canary, User: "ann", Metadata: map[string]string{"task_type": canary}, Key: "once"})
			k.WaitForRun("t", run.ID, perdure.Succeeded)
			large := canary + strings.Repeat("0123456789abcdef", 3<<16)
			k.WaitForRun("t", k.StartOn("t", "echo", large).ID, perdure.Succeeded)
			asked := k.WaitForRun("t", k.StartOn("t", "asks", canary).ID, perdure.Suspended)
			k.AnswerAt(asked, "/may-i", perdure.Answer{Value: "yes"})
			k.WaitForRun("t", asked.ID, perdure.Succeeded)
			broken.Store(t.Name(), true)
			failed := k.WaitForRun("t", k.StartOn("t", "shaky", t.Name()).ID, perdure.Failed)
			if err := k.Signal(t.Context(), "t", "go", "kept", perdure.SignalOptions{Key: "signal-1"}); err != nil {
				t.Fatal(err)
			}
			file, events, thread := export(t, k.Runtime, "t"), k.EventsOf("t"), look(t, k, "t")
			ask, err := k.GetAsk(t.Context(), asked.Asks[0].ID)
			kit.NoErr(t, err)
			listed := list(t, k)

			a := mustArchive(t, k.Runtime, "t")
			if a.ID != "t" || a.User != "ann" || a.Flow != "shaky" || a.Status != perdure.Failed || a.Metadata["task_type"] != canary || !strings.HasPrefix(a.Where, "memory:/") {
				t.Errorf("the archived thread is %+v", a)
			}
			wantArchived(t, k, failed, asked.Asks[0].ID)
			if got, want := cellsOf(t, s), "map[cell archived:1 cell id:1]"; got != want {
				t.Errorf("the store still holds %s, want %s", got, want)
			}
			if found := len(p.names()); found != 1 {
				t.Errorf("the archive holds %q", p.names())
			}
			if again := mustArchive(t, k.Runtime, "t"); !reflect.DeepEqual(again, a) {
				t.Errorf("archived again it is %+v", again)
			}

			mustRestore(t, k.Runtime, "t")
			if got := export(t, k.Runtime, "t"); got != file {
				t.Errorf("the restored thread has another export: %d bytes, before %d", len(got), len(file))
			}
			if got := k.EventsOf("t"); !reflect.DeepEqual(got, events) {
				t.Errorf("its events differ:\n%+v\nbefore:\n%+v", got, events)
			}
			if got := look(t, k, "t"); got != thread {
				t.Errorf("it is\n%s\nbefore:\n%s", got, thread)
			}
			if got, err := k.GetAsk(t.Context(), asked.Asks[0].ID); err != nil || !reflect.DeepEqual(got, ask) {
				t.Errorf("its ask is %+v, %v; before: %+v", got, err, ask)
			}
			if got := list(t, k); got != listed {
				t.Errorf("lists show\n%s\nbefore:\n%s", got, listed)
			}
			if v, err := k.Verify(t.Context(), "t"); err != nil || !v.OK() {
				t.Errorf("Verify: %+v, %v", v, err)
			}

			// The same key means the same run; a retry repeats nothing on record.
			if again := k.MustStart(perdure.StartRequest{Thread: "t", Flow: "ledger", Input: canary, Key: "once"}); again.ID != run.ID {
				t.Errorf("the key of run %s has started %s", run.ID, again.ID)
			}
			broken.Delete(t.Name())
			kit.NoErr(t, k.Retry(t.Context(), "t", failed.ID, perdure.Note{}))
			done := k.WaitForRun("t", failed.ID, perdure.Succeeded)
			var out string
			kit.NoErr(t, json.Unmarshal(done.Output, &out))
			for _, key := range strings.Fields(out) {
				if effects.Of(key) != 1 {
					t.Errorf("the effect with key %s happened %d times", key, effects.Of(key))
				}
			}
			heard := k.WaitForRun("t", k.StartOn("t", "hear", "").ID, perdure.Succeeded)
			if string(heard.Output) != `"kept"` {
				t.Errorf("the signal from before is %s", heard.Output)
			}

			// And there and back again.
			file = export(t, k.Runtime, "t")
			mustArchive(t, k.Runtime, "t")
			if found := p.names(); len(found) != 1 {
				t.Errorf("archived twice, it has the objects %q", found)
			}
			kit.NoErr(t, k.Restore(t.Context(), "t", perdure.RestoreOptions{Remove: true}))
			if got := export(t, k.Runtime, "t"); got != file {
				t.Error("after the second restore it has another export")
			}
			if found := p.names(); len(found) != 0 {
				t.Errorf("the object was to be removed, and there is %q", found)
			}
			kit.NoErr(t, k.Erase(t.Context(), "t", perdure.EraseOptions{}))
			kit.WantNothing(t, s)
		})
	}
}

// look returns what the runtime says about a thread and its state.
func look(t *testing.T, k *kit.Kit, thread string) string {
	t.Helper()
	info, err := k.Get(t.Context(), thread)
	kit.NoErr(t, err)
	state, err := k.StateAt(t.Context(), thread, 0)
	kit.NoErr(t, err)
	raw, err := json.MarshalIndent([]any{info, state}, "", " ")
	kit.NoErr(t, err)
	return string(raw)
}

// list returns what lists show of all threads, but not when they changed.
func list(t *testing.T, k *kit.Kit) string {
	t.Helper()
	var all []perdure.Summary
	for s, err := range k.List(t.Context(), perdure.ListOptions{}) {
		kit.NoErr(t, err)
		s.Cursor, s.Updated = "", time.Time{} // a summary may lag
		all = append(all, s)
	}
	raw, err := json.MarshalIndent(all, "", " ")
	kit.NoErr(t, err)
	return string(raw)
}

// wantArchived makes every kind of request for thread t.
func wantArchived(t *testing.T, k *kit.Kit, run *perdure.Run, ask string) {
	t.Helper()
	ctx := t.Context()
	requests := map[string]func() error{
		"Get":    func() error { _, err := k.Get(ctx, "t"); return err },
		"GetRun": func() error { _, err := k.GetRun(ctx, "t", run.ID); return err },
		"Wait":   func() error { _, err := k.Wait(ctx, "t", run.ID); return err },
		"Start": func() error {
			_, err := k.Start(ctx, perdure.StartRequest{Thread: "t", Flow: "echo", Input: "x"})
			return err
		},
		"StartKey": func() error {
			_, err := k.Start(ctx, perdure.StartRequest{Thread: "t", Flow: "echo", Input: "x", Key: "once"})
			return err
		},
		"Retry":    func() error { return k.Retry(ctx, "t", run.ID, perdure.Note{}) },
		"Cancel":   func() error { return k.Cancel(ctx, "t", run.ID, perdure.Note{}) },
		"Signal":   func() error { return k.Signal(ctx, "t", "go", 1, perdure.SignalOptions{}) },
		"Metadata": func() error { return k.SetMetadata(ctx, "t", nil, map[string]string{"a": "b"}, perdure.Note{}) },
		"Fork":     func() error { _, err := k.Fork(ctx, perdure.ForkRequest{Thread: "t"}); return err },
		"ForkAs": func() error {
			k.StartOn("other", "echo", "x")
			_, err := k.Fork(ctx, perdure.ForkRequest{Thread: "other", As: "t"})
			return err
		},
		"Rewind":  func() error { _, err := k.Rewind(ctx, "t", 1, perdure.Note{}); return err },
		"StateAt": func() error { _, err := k.StateAt(ctx, "t", 0); return err },
		"Export":  func() error { return k.Export(ctx, "t", &strings.Builder{}, perdure.ExportOptions{}) },
		"Verify":  func() error { _, err := k.Verify(ctx, "t"); return err },
		"GetAsk":  func() error { _, err := k.GetAsk(ctx, ask); return err },
		"Answer":  func() error { return k.AnswerAsk(ask, perdure.Answer{Value: "no"}) },
		"Events": func() error {
			for _, err := range k.Events(ctx, "t", perdure.EventOptions{After: 2}) {
				return err
			}
			return nil
		},
	}
	for name, do := range requests {
		kit.WantErr(t, name, do(), perdure.ErrArchived)
		var away *perdure.ArchivedError
		if err := do(); !asArchived(err, &away) || away.Thread != "t" || away.At.IsZero() || !strings.HasPrefix(away.Where, "memory:/") || !strings.Contains(err.Error(), "perdure unarchive t") {
			t.Errorf("%s: %v does not say where the thread is", name, err)
		}
	}
	k.WaitFor("other", perdure.Succeeded)
	kit.NoErr(t, k.Erase(ctx, "other", perdure.EraseOptions{}))
}

// TestOwnersAndLists: archived threads are listed by user and time, those of others
// look as if they did not exist, and their ids are taken.
func TestOwnersAndLists(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := kitOn(t, memstore.New(), newPlace())
		at := map[string]time.Time{}
		for _, id := range []string{"a1", "b1", "a2"} {
			k.MustStart(perdure.StartRequest{Thread: id, Flow: "echo", Input: id, User: id[:1]})
			k.WaitFor(id, perdure.Succeeded)
			at[id] = mustArchive(t, k.Runtime, id).Archived
			time.Sleep(time.Hour)
		}
		k.MustStart(perdure.StartRequest{Thread: "here", Flow: "echo", User: "a", Input: ""})
		other := k.Tenant("other")
		ids := func(rt *perdure.Runtime, o perdure.ArchivedOptions) string {
			var ids []string
			for a, err := range rt.Archived(t.Context(), o) {
				kit.NoErr(t, err)
				ids = append(ids, a.ID)
				o.After = a.Cursor
			}
			return strings.Join(ids, " ")
		}
		for want, got := range map[string]string{
			"a1 b1 a2": ids(k.Runtime, perdure.ArchivedOptions{}), "a1 a2": ids(k.Runtime, perdure.ArchivedOptions{User: "a"}), "b1": ids(k.User("b"), perdure.ArchivedOptions{}),
			"b1 a2": ids(k.Runtime, perdure.ArchivedOptions{From: at["b1"]}), "a1": ids(k.Runtime, perdure.ArchivedOptions{Before: at["b1"]}), "a1 b1": ids(k.Runtime, perdure.ArchivedOptions{Limit: 2}),
			"": ids(other, perdure.ArchivedOptions{}) + ids(k.User("c"), perdure.ArchivedOptions{}),
		} {
			if got != want {
				t.Errorf("listed %q, want %q", got, want)
			}
		}
		for a := range k.Archived(t.Context(), perdure.ArchivedOptions{Limit: 1}) {
			if rest := ids(k.Runtime, perdure.ArchivedOptions{After: a.Cursor}); rest != "b1 a2" {
				t.Errorf("after the first there are %q", rest)
			}
		}
		b := k.User("b")
		_, err := b.Get(t.Context(), "a1")
		kit.WantErr(t, "Get of another's", err, perdure.ErrNoThread)
		_, err = b.Archive(t.Context(), "a1", perdure.Note{})
		kit.WantErr(t, "Archive of another's", err, perdure.ErrNoThread)
		kit.WantErr(t, "Restore of another's", b.Restore(t.Context(), "a1", perdure.RestoreOptions{}), perdure.ErrNoThread)
		kit.WantErr(t, "Erase of another's", b.Erase(t.Context(), "a1", perdure.EraseOptions{}), perdure.ErrNoThread)
		_, err = b.Start(t.Context(), perdure.StartRequest{Thread: "a1", Flow: "echo", Input: ""})
		kit.WantErr(t, "Start on another's", err, perdure.ErrExists)
		_, err = b.Get(t.Context(), "b1")
		kit.WantErr(t, "Get of one's own", err, perdure.ErrArchived)
		kit.WantErr(t, "Restore of what is here", k.Restore(t.Context(), "here", perdure.RestoreOptions{}), perdure.ErrNothingToDo)
		kit.WantErr(t, "Restore of nothing", k.Restore(t.Context(), "none", perdure.RestoreOptions{}), perdure.ErrNoThread)
		without := kit.Runtime(t, k.Store, perdure.Options{})
		_, err = without.Archive(t.Context(), "here", perdure.Note{})
		kit.WantErr(t, "Archive without a place", err, perdure.ErrInvalid)
		kit.WantErr(t, "Restore without a place", without.Restore(t.Context(), "a1", perdure.RestoreOptions{}), perdure.ErrInvalid)
	})
}

// TestEventIDsOfAReusedID: the ids of a thread that reuses an erased one's id are tagged,
// with the same tag before and after.
func TestEventIDsOfAReusedID(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := kitOn(t, memstore.New(), newPlace())
		tag := func() string {
			got, err := k.Tag(t.Context(), "t")
			kit.NoErr(t, err)
			return got
		}
		round := func() string {
			k.StartOn("t", "echo", "in")
			k.WaitFor("t", perdure.Succeeded)
			before := tag()
			mustArchive(t, k.Runtime, "t")
			mustRestore(t, k.Runtime, "t")
			if after := tag(); after != before {
				t.Errorf("the tag was %q and is %q", before, after)
			}
			return before
		}
		if first := round(); first != "" {
			t.Errorf("the first thread has the tag %q", first)
		}
		mustArchive(t, k.Runtime, "t")
		kit.NoErr(t, k.Erase(t.Context(), "t", perdure.EraseOptions{}))
		kit.WantErr(t, "Erase again", k.Erase(t.Context(), "t", perdure.EraseOptions{}), perdure.ErrNoThread)
		kit.WantNothing(t, k.Store)
		if second := round(); second == "" {
			t.Error("the second thread has no tag")
		}
	})
}

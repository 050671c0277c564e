package erasure_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/archive"
	"github.com/perdure/perdure/internal/kit"
	"github.com/perdure/perdure/internal/shelf"
	"github.com/perdure/perdure/store"
	"github.com/perdure/perdure/store/faulty"
	"github.com/perdure/perdure/store/memstore"
)

func flows() []perdure.Flow {
	return []perdure.Flow{
		kit.EchoFlow("echo"),
		kit.AskFlow("ask", perdure.Question{Prompt: "?"}),
		perdure.NewFlow("parent", func(ctx context.Context, in string) (string, error) {
			c, err := perdure.Spawn(ctx, "child", "ask", in)
			if err != nil {
				return "", err
			}
			return perdure.Join[string](ctx, "join", c)
		}),
	}
}

func newPlace(t *testing.T) (archive.Place, string) {
	t.Helper()
	dir := t.TempDir()
	p, err := archive.Dir(dir)
	kit.NoErr(t, err)
	return p, dir
}

// has is how much fill and job give to a user; one of the threads is a child, one a fork.
var has = perdure.UserData{Threads: 6, Archived: 1, Memory: 2, Rules: 1, Credentials: 1, Uploads: 1, Jobs: 1}

// fill gives a user something of everything, with mark in all texts, and stops the
// worker.
func fill(t *testing.T, k *kit.Kit, user, mark string) {
	t.Helper()
	rt := k.User(user)
	ctx := t.Context()
	start := func(id, flow string) {
		t.Helper()
		kit.Start(t, rt, perdure.StartRequest{Flow: flow, Thread: user + id, Title: mark, Input: kit.Large + mark, Metadata: map[string]string{"m": mark}, By: mark})
	}
	for _, id := range []string{"-ended", "-away", "-back"} {
		start(id, "echo")
	}
	start("-asks", "ask")
	start("-parent", "parent") // with a child
	time.Sleep(time.Second)
	_, err := rt.Fork(ctx, perdure.ForkRequest{Thread: user + "-ended", As: user + "-fork", Title: mark})
	kit.NoErr(t, err)
	for _, id := range []string{"-away", "-back"} {
		_, err := rt.Archive(ctx, user+id, perdure.Note{})
		kit.NoErr(t, err)
	}
	kit.NoErr(t, rt.Restore(ctx, user+"-back", perdure.RestoreOptions{}))
	put := func(kind shelf.Kind, ns ...string) {
		t.Helper()
		value, _ := json.Marshal(mark)
		_, err := shelf.Of(k.Runtime, kind).Put(ctx, ns, mark, value, shelf.PutOptions{})
		kit.NoErr(t, err)
	}
	put(shelf.Memory, "user", user)
	put(shelf.Memory, "user", user, "deep", mark)
	put(shelf.Rule, user, "tool")
	put(shelf.Credential, user)
	_, err = rt.Upload(ctx, strings.NewReader(kit.Large+mark), perdure.UploadRequest{Name: mark, MIME: "text/plain"})
	kit.NoErr(t, err)
	k.Stop()
}

// job starts a bulk job for a user's threads. There is no worker any more.
func job(t *testing.T, k *kit.Kit, user, mark string) {
	t.Helper()
	_, err := k.StartBulk(t.Context(), perdure.BulkRequest{Verb: perdure.BulkCancel, Filter: perdure.ListOptions{User: user}, Reason: mark})
	kit.NoErr(t, err)
}

// leftovers returns what a store and an archive have, but for the receipts.
func leftovers(t *testing.T, s store.Store, p archive.Place) []string {
	t.Helper()
	left := slices.DeleteFunc(kit.Leftovers(t, s), func(name string) bool { return strings.HasPrefix(name, "cell erased/") })
	for name, err := range p.List(t.Context(), "", "") {
		kit.NoErr(t, err)
		left = append(left, "object "+name)
	}
	return left
}

func eraseUser(t *testing.T, rt *perdure.Runtime, user string) *perdure.Receipt {
	t.Helper()
	rc, err := rt.EraseUser(t.Context(), user, perdure.EraseUserOptions{By: "operator", Reason: "asked"})
	kit.NoErr(t, err)
	return rc
}

// What a user has goes in one call, and what others have stays as it was. The receipt
// says how much it was, and can be checked.
func TestEraseUserErasesWhatTheUserHasAndNothingElse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const user = "ada lovelace" // not the text of any hash
		s := memstore.New()
		p, _ := newPlace(t)
		k := kit.New(t, s, perdure.Options{Archive: p}, flows()...)
		fill(t, k, "bob", "mark of bob")
		before := kit.Holdings(t, s)
		k = kit.New(t, s, perdure.Options{Archive: p}, flows()...)
		fill(t, k, user, "mark")
		job(t, k, user, "mark")

		var file bytes.Buffer
		kit.NoErr(t, k.Export(t.Context(), user+"-asks", &file, perdure.ExportOptions{}))
		v, err := perdure.VerifyExport(&file)
		kit.NoErr(t, err)
		n, err := k.UserData(t.Context(), user)
		kit.NoErr(t, err)
		want := has
		if *n != want {
			t.Errorf("UserData: %+v, want %+v", *n, want)
		}
		rc := eraseUser(t, k.Runtime, user)
		if rc.Erased != want || len(rc.Threads) != want.Threads+want.Archived || slices.Contains(rc.Threads, "-") {
			t.Errorf("the receipt: %+v, want %+v", rc, want)
		}
		if !rc.Covers(v.Head) || rc.Covers(v.Head[1:]) || rc.Covers("") {
			t.Error("the receipt does not cover the thread that was exported")
		}
		after := kit.Holdings(t, s)
		for key, value := range before {
			if after[key] != value && !strings.HasPrefix(key, "perdure/") {
				t.Errorf("%s of another user has changed", key)
			}
		}
		for key, value := range after {
			if _, was := before[key]; !was && !strings.HasPrefix(key, "erased/") && !strings.HasPrefix(key, "used/") && !strings.HasPrefix(key, "perdure/") {
				t.Errorf("left behind: %s", key)
			}
			if strings.Contains(key+value, user) {
				t.Errorf("%s tells whom it is about: %s", key, value)
			}
		}

		again := eraseUser(t, k.Runtime, user)
		kept, err := k.UserReceipt(t.Context(), user)
		kit.NoErr(t, err)
		for _, other := range []*perdure.Receipt{again, kept} {
			if fmt.Sprint(other) != fmt.Sprint(rc) {
				t.Errorf("another receipt: %+v, want %+v", other, rc)
			}
		}
		kit.NoErr(t, k.CheckReceipt(t.Context(), rc, user))
		kit.WantErr(t, "CheckReceipt", k.CheckReceipt(t.Context(), rc, "bob"), perdure.ErrInvalid)
		kit.WantErr(t, "CheckReceipt", k.Tenant("x").CheckReceipt(t.Context(), rc, user), perdure.ErrInvalid)

		raw, err := json.MarshalIndent(rc, "", "  ")
		kit.NoErr(t, err)
		_, err = perdure.VerifyReceipt(bytes.NewReader(raw))
		kit.NoErr(t, err)
		if strings.Contains(string(raw), user) || strings.Contains(string(raw), "operator") {
			t.Errorf("the receipt tells too much: %s", raw)
		}
		for _, change := range [][2]string{{`"threads": 6`, `"threads": 5`}, {rc.Threads[0], rc.Threads[1]}, {rc.User, rc.User + "x"}, {`"format": 1`, `"format": 2`}, {`"sig"`, `"more": 1, "sig"`}} {
			_, err := perdure.VerifyReceipt(strings.NewReader(strings.Replace(string(raw), change[0], change[1], 1)))
			kit.WantErr(t, "VerifyReceipt after a change of "+change[0], err, perdure.ErrInvalid)
		}

		eraseUser(t, k.Runtime, "bob")
		if left := leftovers(t, s, p); len(left) > 0 {
			t.Errorf("left behind:\n%s", strings.Join(left, "\n"))
		}
	})
}

// dieErasing erases a user with a store that dies, and reports whether that failed.
func dieErasing(t *testing.T, s store.Store, p archive.Place, plan faulty.Plan, user string) bool {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	dying := faulty.New(s, plan)
	dying.OnCrash(cancel)
	rt, err := perdure.New(ctx, dying, perdure.Options{Version: "test", Archive: p}, flows()...)
	if err == nil {
		_, err = rt.EraseUser(ctx, user, perdure.EraseUserOptions{})
	}
	return err != nil
}

// bases are stores with batches and without.
var bases = map[string]func() store.Store{"batches": func() store.Store { return memstore.New() }, "plain": func() store.Store { return kit.Plain(memstore.New()) }}

// An erase of a user that dies at any write is finished by another one, or by a rebuild,
// which does not know the user. Then nothing is left, and the receipt has everything.
func TestUserEraseThatWasCutOffIsFinished(t *testing.T) {
	then := map[string]func(t *testing.T, rt *perdure.Runtime){
		"EraseUser": func(t *testing.T, rt *perdure.Runtime) { eraseUser(t, rt, "ada") },
		"Rebuild": func(t *testing.T, rt *perdure.Runtime) {
			_, err := rt.Rebuild(t.Context())
			kit.NoErr(t, err)
			if _, err := rt.UserReceipt(t.Context(), "ada"); errors.Is(err, perdure.ErrNothingToDo) {
				eraseUser(t, rt, "ada") // it died before it had begun
			}
		},
	}
	for name, finish := range then {
		for base, create := range bases {
			kit.Bubble(t, name+" "+base, func(t *testing.T) {
				cut := 0
				for n, dies := 1, true; dies; n += kit.Sized(31, 1, 1) {
					at := fmt.Sprint("dead after write ", n)
					s := create()
					p, _ := newPlace(t)
					k := kit.New(t, s, perdure.Options{Archive: p}, flows()...)
					fill(t, k, "ada", "mark")
					job(t, k, "ada", "mark")
					if dies = dieErasing(t, s, p, faulty.AtWrite(n, faulty.CrashAfter), "ada"); dies {
						cut++
					}
					finish(t, k.Runtime)
					rc, err := k.UserReceipt(t.Context(), "ada")
					kit.NoErr(t, err)
					if rc.Erased != has {
						t.Errorf("%s: the receipt has %+v, want %+v", at, rc.Erased, has)
					}
					if left := leftovers(t, s, p); len(left) > 0 {
						t.Errorf("%s: left behind:\n%s", at, strings.Join(left, "\n"))
					}
					if t.Failed() {
						return
					}
				}
				if cut < kit.Sized(4, 100, 100) {
					t.Errorf("the sweep made only %d cuts", cut)
				}
			})
		}
	}
}

// A start that dies before its first entry may leave cells that lead from the user to no
// thread, if it has more metadata than a batch can write.
func TestEraseUserAfterAStartThatDied(t *testing.T) {
	metadata := map[string]string{}
	for n := range 20 {
		metadata[fmt.Sprint("key", n)] = "value"
	}
	for base, create := range bases {
		kit.Bubble(t, base, func(t *testing.T) {
			unseen := 0
			for n, dies := 1, true; dies; n++ {
				s := create()
				ctx, cancel := context.WithCancel(t.Context())
				dying := faulty.New(s, faulty.AtWrite(n, faulty.CrashAfter))
				dying.OnCrash(cancel)
				rt, err := perdure.New(ctx, dying, perdure.Options{Version: "test"}, flows()...)
				if err == nil {
					_, err = rt.Start(ctx, perdure.StartRequest{Flow: "echo", Thread: "t", User: "ada", Metadata: metadata})
				}
				dies = err != nil
				cancel()
				k := kit.New(t, s, perdure.Options{}, flows()...)
				if _, err := k.Get(t.Context(), "t"); errors.Is(err, perdure.ErrNoThread) {
					unseen++
				}
				_, err = k.EraseUser(t.Context(), "ada", perdure.EraseUserOptions{})
				kit.NoErr(t, err)
			}
			if unseen < 2 {
				t.Errorf("only %d starts died before they had begun", unseen)
			}
		})
	}
}

// A runtime for one user erases that one only, and nobody is not a user.
func TestEraseUserRefusesOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := kit.New(t, nil, perdure.Options{}, flows()...)
		kit.Start(t, k.Runtime, perdure.StartRequest{Flow: "echo", Thread: "t", User: "ada", Input: ""})
		kit.Start(t, k.Runtime, perdure.StartRequest{Flow: "echo", Thread: "nobody's", Input: ""})
		_, err := k.User("bob").EraseUser(t.Context(), "ada", perdure.EraseUserOptions{})
		kit.WantErr(t, "EraseUser", err, perdure.ErrInvalid)
		_, err = k.EraseUser(t.Context(), "", perdure.EraseUserOptions{})
		kit.WantErr(t, "EraseUser", err, perdure.ErrInvalid)
		_, err = k.UserReceipt(t.Context(), "ada")
		kit.WantErr(t, "UserReceipt", err, perdure.ErrNothingToDo)
		eraseUser(t, k.User("ada"), "ada")
		_, err = k.Get(t.Context(), "t")
		kit.WantErr(t, "Get", err, perdure.ErrNoThread)
		_, err = k.Get(t.Context(), "nobody's")
		kit.NoErr(t, err)
	})
}

// Without the archive, archived threads stay and are reported; everything else goes.
func TestEraseUserWithoutTheArchiveErasesTheRest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := memstore.New()
		p, _ := newPlace(t)
		k := kit.New(t, s, perdure.Options{Archive: p}, flows()...)
		fill(t, k, "ada", "mark")
		poor := kit.Runtime(t, s, perdure.Options{}, flows()...)
		_, err := poor.EraseUser(t.Context(), "ada", perdure.EraseUserOptions{})
		kit.WantErr(t, "EraseUser", err, perdure.ErrInvalid)
		_, err = poor.UserReceipt(t.Context(), "ada")
		kit.WantErr(t, "UserReceipt", err, perdure.ErrBusy)
		n, err := k.UserData(t.Context(), "ada")
		kit.NoErr(t, err)
		if (*n != perdure.UserData{Threads: 1, Archived: 1}) { // the one that was restored has an object too
			t.Errorf("left: %+v", *n)
		}
		eraseUser(t, k.Runtime, "ada")
		if left := leftovers(t, s, p); len(left) > 0 {
			t.Errorf("left behind:\n%s", strings.Join(left, "\n"))
		}
	})
}

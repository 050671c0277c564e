package vault_test

import (
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/archive"
	"github.com/perdure/perdure/archive/s3archive"
	"github.com/perdure/perdure/internal/kit"
	"github.com/perdure/perdure/internal/s3test"
	"github.com/perdure/perdure/store"
	"github.com/perdure/perdure/store/faulty"
	"github.com/perdure/perdure/store/memstore"
	"github.com/perdure/perdure/store/seal"
)

// TestDamagedObjects changes the object of an archived thread in every way. It is
// refused, nothing stays in the store, and the intact object can still be restored.
func TestDamagedObjects(t *testing.T) {
	for _, sealed := range []bool{false, true} {
		kit.Bubble(t, fmt.Sprint("sealed ", sealed), func(t *testing.T) {
			s, p := newStore(t, sealed), newPlace()
			rt, files := made(t, s, p)
			mustArchive(t, rt, "f")
			name := p.names()[0]
			good := p.objects[name]
			mustArchive(t, rt, "t")
			var other []byte // of another thread
			for n, data := range p.objects {
				if n != name {
					other = data
				}
			}
			foreign := newPlace() // of the same thread in another store
			elsewhere, _ := made(t, newStore(t, sealed), foreign)
			mustArchive(t, elsewhere, "f")
			held := kit.Holdings(t, s)
			cases := map[string][]byte{"none": nil, "empty": {}, "another thread's": other, "another store's": foreign.objects[foreign.names()[0]],
				"longer": append(bytes.Clone(good), 0), "twice": append(bytes.Clone(good), good...), "shorter": good[:len(good)-1], "half": good[:len(good)/2]}
			step := max(1, len(good)/kit.Sized(16, 400, 4000))
			for i := 0; i < len(good); i += step {
				bad := bytes.Clone(good)
				bad[i] ^= 1 << (i % 8)
				cases[fmt.Sprint("bit in byte ", i)] = bad
			}
			if !sealed { // the same content, packed in another way
				cases["packed anew"] = repack(t, good)
			}
			for what, bad := range cases {
				if p.objects[name] = bad; bad == nil {
					delete(p.objects, name)
				}
				err := rt.Restore(t.Context(), "f", perdure.RestoreOptions{Remove: true})
				if !errors.Is(err, perdure.ErrCorrupt) {
					t.Errorf("%s: %v; want ErrCorrupt", what, err)
				}
				if now := p.objects[name]; !bytes.Equal(now, bad) {
					t.Errorf("%s: the object was changed", what)
				}
				if now := kit.Holdings(t, s); fmt.Sprint(now) != fmt.Sprint(held) {
					t.Errorf("%s: the store holds\n%v\nbefore:\n%v", what, now, held)
				}
			}
			p.objects[name] = good
			elsewhereDir, err := archive.Dir(t.TempDir())
			kit.NoErr(t, err)
			lost := kit.Runtime(t, s, perdure.Options{Archive: elsewhereDir}, flows()...)
			if err := lost.Restore(t.Context(), "f", perdure.RestoreOptions{}); !errors.Is(err, perdure.ErrInvalid) || !strings.Contains(err.Error(), "memory:") {
				t.Errorf("Restore with another archive: %v; want one that names the right one", err)
			}
			mustRestore(t, rt, "f")
			if !whole(t, rt, "f", files["f"]) {
				t.Error("it is not back")
			}
		})
	}
}

// newStore returns an empty store.
func newStore(t *testing.T, sealed bool) store.Store {
	t.Helper()
	inner := memstore.New()
	if !sealed {
		return inner
	}
	ring, err := seal.NewRing("k", map[string][]byte{"k": []byte(strings.Repeat("k", 32))})
	kit.NoErr(t, err)
	s, err := seal.New(t.Context(), inner, ring)
	kit.NoErr(t, err)
	return s
}

// repack compresses the content of an object with other settings.
func repack(t *testing.T, object []byte) []byte {
	t.Helper()
	r, err := gzip.NewReader(bytes.NewReader(object))
	kit.NoErr(t, err)
	var b bytes.Buffer
	w, err := gzip.NewWriterLevel(&b, gzip.NoCompression)
	kit.NoErr(t, err)
	_, err = io.Copy(w, r)
	kit.NoErr(t, errors.Join(err, w.Close()))
	return b.Bytes()
}

// TestObjectsOfASealedStore: they tell nothing, and others can be unpacked and
// verified by anyone.
func TestObjectsOfASealedStore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, sealed := range []bool{false, true} {
			p := newPlace()
			k := kitOn(t, newStore(t, sealed), p)
			k.WaitForRun("t", k.StartOn("t", "echo", canary).ID, perdure.Succeeded)
			mustArchive(t, k.Runtime, "t")
			object := p.objects[p.names()[0]]
			if bytes.Contains(object, []byte(canary)) {
				t.Error("the canary is in the object")
			}
			r, err := gzip.NewReader(bytes.NewReader(object))
			if sealed {
				if err == nil {
					t.Error("an object of a sealed store is not encrypted")
				}
				continue
			}
			kit.NoErr(t, err)
			if v, err := perdure.VerifyExport(r); err != nil || !v.OK() || v.Thread != "t" || v.Signer == "" {
				t.Errorf("VerifyExport of an object: %+v, %v", v, err)
			}
		}
	})
}

// TestPlaceFails has every call of the place fail once, in turn, while a thread is
// archived, restored and erased. What was to happen happens when it is repeated.
func TestPlaceFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		broken := errors.New("the place is broken")
		for n := 1; ; n++ {
			s, p := memstore.New(), newPlace()
			rt, files := made(t, s, p)
			calls := 0
			p.fail = func(string) error {
				if calls++; calls == n {
					return broken
				}
				return nil
			}
			repeat := func(what string, do func() error) {
				if err := do(); err != nil {
					if !errors.Is(err, broken) {
						t.Errorf("call %d: %s: %v", n, what, err)
					}
					whole(t, rt, "f", files["f"])
					kit.NoErr(t, do())
				}
			}
			repeat("Archive", func() error { return archiveF(t.Context(), rt) })
			repeat("Restore", func() error { return restoreF(t.Context(), rt) })
			if !whole(t, rt, "f", files["f"]) {
				t.Errorf("call %d: it is not back", n)
			}
			repeat("Archive again", func() error { return archiveF(t.Context(), rt) })
			if err := rt.Erase(t.Context(), "f", perdure.EraseOptions{}); err != nil {
				kit.NoErr(t, rt.Erase(t.Context(), "f", perdure.EraseOptions{}))
			}
			gone(t, rt, s, p)
			if t.Failed() {
				t.Fatalf("call %d: see above", n)
			}
			if calls < n {
				if n < 15 {
					t.Errorf("only %d calls were made", calls)
				}
				return
			}
		}
	})
}

// TestAPlaceThatIsAway: the error says so once.
func TestAPlaceThatIsAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPlace()
		rt, _ := made(t, memstore.New(), p)
		p.fail = func(string) error { return fmt.Errorf("%w: it is away", archive.ErrUnavailable) }
		if err := archiveF(t.Context(), rt); err == nil || strings.Count(err.Error(), "it is away") != 1 {
			t.Errorf("the error is %v", err)
		}
	})
}

// TestManyAtOnce has processes archive, restore and use a thread at the same time, with
// calls of store and place delayed at random, and then erase it. Every run that was
// acknowledged is there. Every other time one of them erases the thread too: then
// nothing is left of it in the end, whoever was at it.
func TestManyAtOnce(t *testing.T) {
	for seed := range uint64(kit.Sized(10, 200, 2000)) {
		kit.Bubble(t, fmt.Sprint(seed), func(t *testing.T) {
			s, p := memstore.New(), newPlace()
			random := rand.New(rand.NewPCG(seed, 1))
			var mu sync.Mutex
			pause := func() time.Duration {
				mu.Lock()
				defer mu.Unlock()
				return time.Duration(random.IntN(5)) * time.Millisecond
			}
			p.fail = func(string) error { time.Sleep(pause()); return nil }
			k := kitOn(t, s, p)
			k.WaitForRun("t", k.StartOn("t", "echo", kit.Large).ID, perdure.Succeeded)
			runs, all, erases := sync.Map{}, sync.WaitGroup{}, seed%2 == 1
			for i := range 6 {
				rt := kit.Runtime(t, faulty.New(s, func(faulty.Call) faulty.Fault { return faulty.Delay(pause()) }), perdure.Options{Archive: p}, flows()...)
				all.Go(func() {
					for n := range 5 {
						var err error
						switch (i + n) % 3 {
						case 0:
							if erases && i == 4 {
								err = rt.Erase(t.Context(), "t", perdure.EraseOptions{})
								break
							}
							_, err = rt.Archive(t.Context(), "t", perdure.Note{})
						case 1:
							err = rt.Restore(t.Context(), "t", perdure.RestoreOptions{Remove: n%2 == 0})
						case 2:
							var run *perdure.Run
							if run, err = rt.Start(t.Context(), perdure.StartRequest{Thread: "t", Flow: "echo", Input: "x"}); err == nil {
								runs.Store(run.ID, true)
								_, err = rt.Wait(t.Context(), "t", run.ID)
							}
						}
						if erases && (errors.Is(err, perdure.ErrNoThread) || errors.Is(err, perdure.ErrErased) || errors.Is(err, perdure.ErrRunNotFound)) {
							err = nil
						}
						if err != nil && !errors.Is(err, perdure.ErrArchived) && !errors.Is(err, perdure.ErrBusy) && !errors.Is(err, perdure.ErrNothingToDo) {
							t.Errorf("process %d, round %d: %v", i, n, err)
						}
					}
				})
			}
			all.Wait()
			time.Sleep(time.Minute)
			p.fail = nil
			if erases {
				if err := k.Erase(t.Context(), "t", perdure.EraseOptions{}); err != nil && !errors.Is(err, perdure.ErrNoThread) {
					t.Errorf("Erase: %v", err)
				}
				k.Stop()
				gone(t, k.Runtime, s, p)
				return
			}
			if err := k.Restore(t.Context(), "t", perdure.RestoreOptions{}); err != nil && !errors.Is(err, perdure.ErrNothingToDo) {
				t.Errorf("Restore: %v", err)
			}
			for id := range runs.Range {
				if run, err := k.GetRun(t.Context(), "t", id.(string)); err != nil || run.Status != perdure.Succeeded {
					t.Errorf("run %s: %+v, %v", id, run, err)
				}
			}
			if v, err := k.Verify(t.Context(), "t"); err != nil || !v.OK() {
				t.Errorf("Verify: %+v, %v", v, err)
			}
			kit.NoErr(t, k.Erase(t.Context(), "t", perdure.EraseOptions{}))
			k.Stop()
			gone(t, k.Runtime, s, p)
		})
	}
}

// TestThawing archives to S3 in the class GLACIER, and restores once the object has
// been thawed.
func TestThawing(t *testing.T) {
	fake := s3test.NewFake()
	server := httptest.NewServer(fake)
	defer server.Close()
	p, err := s3archive.Open(t.Context(), s3test.StoreURL(server.URL, "thawing"), s3archive.Options{AccessKey: s3test.AccessKey, SecretKey: s3test.SecretKey, Class: "GLACIER"})
	kit.NoErr(t, err)
	s := memstore.New()
	k := kitOn(t, s, p)
	k.WaitForRun("t", k.StartOn("t", "echo", kit.Large).ID, perdure.Succeeded)
	file := export(t, k.Runtime, "t")
	mustArchive(t, k.Runtime, "t")
	held := fmt.Sprint(kit.Holdings(t, s))
	frozen := true
	fake.Before(func(w http.ResponseWriter, r *http.Request) bool {
		if r.Method == http.MethodGet && frozen && !r.URL.Query().Has("location") && !r.URL.Query().Has("prefix") {
			s3test.Refuse(w, http.StatusForbidden, "InvalidObjectState")
			return true
		}
		return false
	})
	err = k.Restore(context.Background(), "t", perdure.RestoreOptions{})
	if !errors.Is(err, archive.ErrThawing) || !strings.Contains(err.Error(), "restore-object") {
		t.Errorf("Restore of a frozen thread: %v", err)
	}
	if now := fmt.Sprint(kit.Holdings(t, s)); now != held {
		t.Errorf("then the store holds\n%s\nbefore:\n%s", now, held)
	}
	frozen = false
	mustRestore(t, k.Runtime, "t")
	if export(t, k.Runtime, "t") != file {
		t.Error("it has another export")
	}
	kit.NoErr(t, k.Erase(t.Context(), "t", perdure.EraseOptions{}))
	for name, err := range p.List(t.Context(), "", "") {
		t.Errorf("left in the bucket: %q, %v", name, err)
	}
}

package lifecycle_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"strings"
	"testing"
	"testing/iotest"
	"testing/synctest"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/engine"
	"github.com/perdure/perdure/internal/kit"
	"github.com/perdure/perdure/internal/threads"
	"github.com/perdure/perdure/store"
	"github.com/perdure/perdure/store/faulty"
	"github.com/perdure/perdure/store/filestore"
	"github.com/perdure/perdure/store/memstore"
	"github.com/perdure/perdure/store/sqlitestore"
)

// picture is a file of three chunks.
var picture = bytes.Repeat([]byte("not all the same, "), 40_000)

// size returns the size of a file that the thread was given, in a step.
func size(ctx context.Context, name, sum string) (string, error) {
	return perdure.Step(ctx, name, func(ctx context.Context) (string, error) {
		data, there, err := engine.ReadAttached(ctx, sum)
		return fmt.Sprint(there, len(data)), err
	})
}

// lookFlow looks at the file that its input names; seeFlow at those that an answer, a
// signal and steering name.
func fileFlows() []perdure.Flow {
	return []perdure.Flow{
		perdure.NewFlow("look", func(ctx context.Context, sum string) (string, error) { return size(ctx, "look", sum) }),
		perdure.NewFlow("see", func(ctx context.Context, _ string) (string, error) {
			sum, err := perdure.Ask[string](ctx, "ask", perdure.Question{Prompt: "Which?"})
			if err != nil {
				return "", err
			}
			asked, err := size(ctx, "asked", sum)
			if err != nil {
				return "", err
			}
			if sum, err = perdure.Receive[string](ctx, "heard", "file", 0); err != nil {
				return "", err
			}
			heard, err := size(ctx, "got", sum)
			return asked + " " + heard, err
		}),
	}
}

func upload(t *testing.T, rt *perdure.Runtime, data []byte) *perdure.Upload {
	t.Helper()
	u, err := rt.Upload(t.Context(), bytes.NewReader(data), perdure.UploadRequest{Name: "a.png", MIME: "image/png", User: "ann"})
	kit.NoErr(t, err)
	return u
}

// wantSeen is the output of lookFlow if the picture was there.
var wantSeen = fmt.Sprint(true, len(picture))

// An upload and the start that attaches it, cut off anywhere, can be repeated: the
// run sees the file, and in the end nothing is left.
func TestAnUploadThatWasCutOffLeavesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cut, begun := 0, map[bool]int{}
		for at, plan := range faulty.SweepCalls(cuts()...) {
			s := memstore.New()
			start := func(ctx context.Context, rt *perdure.Runtime) error {
				u, err := rt.Upload(ctx, bytes.NewReader(picture), perdure.UploadRequest{User: "ann"})
				if err != nil {
					return err
				}
				_, err = rt.Start(ctx, perdure.StartRequest{Thread: "t", User: "ann", Flow: "look", Input: u.Blob, Attach: []string{u.ID}, Key: "k"})
				return err
			}
			ctx, cancel := context.WithCancel(t.Context())
			dying := faulty.New(s, plan)
			dying.OnCrash(cancel)
			rt, err := perdure.New(ctx, dying, perdure.Options{Version: "test"}, fileFlows()...)
			if err == nil {
				err = start(ctx, rt)
			}
			cancel()
			if err != nil {
				cut++
			}
			k := kit.New(t, s, perdure.Options{}, fileFlows()...)
			_, err = k.Get(t.Context(), "t")
			begun[err == nil]++
			kit.NoErr(t, start(t.Context(), k.Runtime))
			kit.WantOutput(t, k.WaitFor("t", perdure.Succeeded), wantSeen)
			if v, err := k.Verify(t.Context(), "t"); err != nil || v.Problem != "" {
				t.Errorf("%s: %+v %v", at, v, err)
			}
			kit.NoErr(t, k.Erase(t.Context(), "t", perdure.EraseOptions{}))
			k.Stop()
			time.Sleep(threads.UploadLife)
			if _, err := threads.Behind(k.Runtime).All.ExpireUploads(t.Context()); err != nil {
				t.Error(err)
			}
			if left := kit.Leftovers(t, s); len(left) > 0 {
				t.Errorf("%s: left behind:\n%s", at, strings.Join(left, "\n"))
			}
			if t.Failed() {
				return
			}
		}
		if cut < 20*len(cuts()) || begun[true] == 0 || begun[false] == 0 {
			t.Errorf("the sweep made only %d cuts, %v", cut, begun)
		}
	})
}

// A removal of old uploads that is cut off anywhere is finished by the next one.
func TestExpiryThatWasCutOffIsFinished(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for at, plan := range faulty.SweepCalls(cuts()...) {
			s := memstore.New()
			rt := kit.Runtime(t, s, perdure.Options{}, fileFlows()...)
			upload(t, rt, picture)
			time.Sleep(threads.UploadLife)
			fresh := upload(t, rt, picture)
			dying, err := perdure.New(t.Context(), faulty.New(s, plan), perdure.Options{Version: "test"}, fileFlows()...)
			if err == nil {
				threads.Behind(dying).All.ExpireUploads(t.Context())
			}
			_, err = threads.Behind(rt).All.ExpireUploads(t.Context())
			kit.NoErr(t, err)
			if _, err := threads.Behind(rt).FindUpload(t.Context(), fresh.ID); err != nil {
				t.Errorf("%s: the upload that has time left: %v", at, err)
			}
			kit.NoErr(t, rt.DropUpload(t.Context(), fresh.ID))
			kit.WantNothing(t, s)
		}
	})
}

// Files come with inputs, answers and signals, on every store, and belong to the
// thread from then on: its forks, exports and erase.
func TestFilesBelongToTheirThread(t *testing.T) {
	dir := t.TempDir()
	for name, open := range map[string]func() (store.Store, error){
		"memory": func() (store.Store, error) { return memstore.New(), nil },
		"file": func() (store.Store, error) {
			return filestore.Open(t.Context(), filepath.Join(dir, "files"), filestore.Options{})
		},
		"sqlite": func() (store.Store, error) {
			return sqlitestore.Open(t.Context(), filepath.Join(dir, "test.db"), sqlitestore.Options{})
		},
	} {
		t.Run(name, func(t *testing.T) {
			s, err := open()
			kit.NoErr(t, err)
			t.Cleanup(func() { s.Close() })
			k := kit.New(t, s, perdure.Options{}, fileFlows()...)
			ctx, u := t.Context(), upload(t, k.Runtime, picture)
			end := func(thread string) *perdure.Run {
				run, err := k.WaitEnd(ctx, thread, "")
				kit.NoErr(t, err)
				return run
			}
			k.MustStart(perdure.StartRequest{Thread: "t", Flow: "see", Input: "?", User: "ann"})
			ask := k.WaitFor("t", perdure.Suspended).Asks[0].ID
			answer := perdure.AskAnswer{Ask: ask, Answer: perdure.Answer{Value: u.Blob}, Attach: []string{u.ID}}
			kit.NoErr(t, k.Answer(ctx, answer))
			other := upload(t, k.Runtime, picture[1:])
			signal := perdure.SignalOptions{Key: "s", Attach: []string{other.ID}}
			kit.NoErr(t, k.Signal(ctx, "t", "file", other.Blob, signal))
			kit.WantOutput(t, end("t"), wantSeen+" "+fmt.Sprint(true, len(picture)-1))
			kit.NoErr(t, k.Signal(ctx, "t", "file", other.Blob, signal))
			for _, attach := range [][]string{nil, {u.ID}, {other.ID, u.ID}} {
				kit.WantErr(t, "Signal with other files", k.Signal(ctx, "t", "file", other.Blob, perdure.SignalOptions{Key: "s", Attach: attach}), perdure.ErrKeyReused)
			}
			kit.NoErr(t, errors.Join(k.DropUpload(ctx, u.ID), k.DropUpload(ctx, other.ID)))

			// What was done with an upload can be repeated without it.
			kit.NoErr(t, errors.Join(k.Answer(ctx, answer), k.Signal(ctx, "t", "file", other.Blob, signal)))
			signal.Key = "another"
			kit.WantErr(t, "Signal", k.Signal(ctx, "t", "file", other.Blob, signal), perdure.ErrNoUpload)

			k.MustStart(perdure.StartRequest{Thread: "t", Flow: "look", Input: u.Blob})
			kit.WantOutput(t, end("t"), wantSeen)
			fork, err := k.Fork(ctx, perdure.ForkRequest{Thread: "t", As: "f"})
			kit.NoErr(t, err)
			k.MustStart(perdure.StartRequest{Thread: fork.Thread, Flow: "look", Input: u.Blob})
			kit.WantOutput(t, end("f"), wantSeen)
			var file bytes.Buffer
			kit.NoErr(t, k.Export(ctx, "f", &file, perdure.ExportOptions{}))
			_, err = k.Import(ctx, bytes.NewReader(file.Bytes()), perdure.ImportOptions{As: "i"})
			kit.NoErr(t, err)
			k.MustStart(perdure.StartRequest{Thread: "i", Flow: "look", Input: u.Blob})
			kit.WantOutput(t, end("i"), wantSeen)
			if !bytes.Contains(file.Bytes(), []byte(`"size":`+fmt.Sprint(len(picture)))) {
				t.Error("the export does not have the file")
			}
			kit.NoErr(t, errors.Join(k.Erase(ctx, "t", perdure.EraseOptions{Dependents: true}), k.Erase(ctx, "i", perdure.EraseOptions{})))
			kit.WantNothing(t, s)
		})
	}
}

// A user reaches the own uploads only, a tenant those of its users; they expire.
func TestWhoReachesAnUpload(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := memstore.New()
		rt := kit.Runtime(t, s, perdure.Options{}, fileFlows()...)
		u := upload(t, rt, picture)
		start := func(rt *perdure.Runtime, id string) error {
			_, err := rt.Start(t.Context(), perdure.StartRequest{Flow: "look", Input: u.Blob, Attach: []string{id}})
			return err
		}
		for _, id := range []string{"", "..", "x", strings.Repeat("0", 24), u.ID + "/", strings.ToUpper(u.ID), u.Blob} {
			kit.WantErr(t, id, start(rt, id), perdure.ErrNoUpload)
		}
		kit.WantErr(t, "another tenant", start(rt.Tenant("acme"), u.ID), perdure.ErrNoUpload)
		kit.WantErr(t, "another user", start(rt.User("bob"), u.ID), perdure.ErrNoUpload)
		kit.WantErr(t, "another user", rt.User("bob").DropUpload(t.Context(), u.ID), perdure.ErrNoUpload)
		if got := kit.Journals(t, s); len(got) > 0 {
			t.Errorf("refused starts have left %v", got)
		}
		kit.NoErr(t, errors.Join(start(rt.User("ann"), u.ID), start(rt, u.ID)))
		_, err := rt.User("bob").Upload(t.Context(), strings.NewReader("x"), perdure.UploadRequest{User: "ann"})
		kit.WantErr(t, "an upload for somebody else", err, perdure.ErrInvalid)
		time.Sleep(threads.UploadLife)
		kit.WantErr(t, "an old one", start(rt, u.ID), perdure.ErrNoUpload)
		kit.NoErr(t, threads.Behind(rt).DropUploads(t.Context(), func(user string) bool { return user == "ann" }, func(string) error { return nil }))
		for cell := range s.List(t.Context(), "upload", "") {
			t.Errorf("left behind: %s", cell.Key)
		}
	})
}

// An upload that fails leaves nothing.
func TestAnUploadThatFailsLeavesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := memstore.New()
		rt := kit.Runtime(t, s, perdure.Options{}, fileFlows()...)
		broken := io.MultiReader(bytes.NewReader(picture), iotest.ErrReader(io.ErrUnexpectedEOF))
		for name, c := range map[string]struct {
			body io.Reader
			q    perdure.UploadRequest
			want error
		}{
			"cut off":      {broken, perdure.UploadRequest{}, io.ErrUnexpectedEOF},
			"wrong digest": {bytes.NewReader(picture), perdure.UploadRequest{SHA256: make([]byte, 32)}, perdure.ErrInvalid},
			"bad digest":   {bytes.NewReader(picture), perdure.UploadRequest{SHA256: make([]byte, 31)}, perdure.ErrInvalid},
			"a path":       {bytes.NewReader(picture), perdure.UploadRequest{Name: "../a"}, perdure.ErrInvalid},
			"another path": {bytes.NewReader(picture), perdure.UploadRequest{Name: `..\a`}, perdure.ErrInvalid},
			"not seen":     {bytes.NewReader(picture), perdure.UploadRequest{Name: "a\u202egnp.exe"}, perdure.ErrInvalid},
		} {
			_, err := rt.Upload(t.Context(), c.body, c.q)
			kit.WantErr(t, name, err, c.want)
			kit.WantNothing(t, s)
		}
	})
}

package erasure_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/agent/memory"
	"github.com/perdure/perdure/internal/kit"
	"github.com/perdure/perdure/internal/upkeep"
	"github.com/perdure/perdure/store/faulty"
	"github.com/perdure/perdure/store/memstore"
)

// TestAStepRemembersNothingOfAnErasedUser: a step that was running when everything of
// its user was erased writes to memory afterwards. That does not stay. If only its thread
// is erased, it does.
func TestAStepRemembersNothingOfAnErasedUser(t *testing.T) {
	for name, erase := range map[string]func(*testing.T, *perdure.Runtime) (stays bool){
		"user": func(t *testing.T, rt *perdure.Runtime) bool { eraseUser(t, rt, "ada"); return false },
		"thread": func(t *testing.T, rt *perdure.Runtime) bool {
			kit.NoErr(t, rt.Erase(t.Context(), "t", perdure.EraseOptions{}))
			return true
		},
		"user, who comes back": func(t *testing.T, rt *perdure.Runtime) bool {
			eraseUser(t, rt, "ada")
			kit.Start(t, rt, perdure.StartRequest{Flow: "echo", Thread: "t", User: "ada", Input: "again"})
			return false
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				began, erased, wrote := make(chan bool), make(chan bool), make(chan error, 1)
				late := perdure.NewFlow("late", func(ctx context.Context, _ string) (string, error) {
					return perdure.Step(ctx, "remember", func(ctx context.Context) (string, error) {
						close(began)
						<-erased
						m, err := memory.Here(ctx)
						if err == nil {
							_, err = m.Put(context.WithoutCancel(ctx), nil, "secret", "mark", memory.PutOptions{})
						}
						wrote <- err
						return "", err
					})
				})
				s := memstore.New()
				k := kit.New(t, s, perdure.Options{}, append(flows(), late)...)
				k.MustStart(perdure.StartRequest{Thread: "t", Flow: "late", User: "ada"})
				<-began
				stays := erase(t, k.Runtime)
				close(erased)
				if err := <-wrote; errors.Is(err, perdure.ErrErased) == stays {
					t.Errorf("Put: %v", err)
				}
				_, err := memory.Of(k.Runtime).Get(t.Context(), memory.User("ada"), "secret")
				if (err == nil) != stays {
					t.Errorf("afterwards Get: %v", err)
				}
				k.Stop()
			})
		})
	}
}

// TestExportsAndReportsOfAnErasedUser: exports that bulk jobs wrote go with their user,
// and so do the reports of other jobs on the user's threads.
func TestExportsAndReportsOfAnErasedUser(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := memstore.New()
		p, _ := newPlace(t)
		k := kit.New(t, s, perdure.Options{Archive: p}, flows()...)
		for _, user := range []string{"ada", "bob"} {
			run := k.MustStart(perdure.StartRequest{Thread: user + "-thread", Flow: "echo", User: user})
			k.WaitForRun(user+"-thread", run.ID, perdure.Succeeded)
		}
		k.MustFork(perdure.ForkRequest{Thread: "ada-thread", As: "ada-fork"})
		k.MustStart(perdure.StartRequest{Thread: "ada-asks", Flow: "ask", User: "ada"})
		k.WaitFor("ada-asks", perdure.Suspended)
		carryOut := func(verb perdure.BulkVerb, flow string) *perdure.Bulk {
			t.Helper()
			b, err := k.StartBulk(t.Context(), perdure.BulkRequest{Verb: verb, Filter: perdure.ListOptions{Flow: flow}})
			kit.NoErr(t, err)
			for b.Ended.IsZero() {
				time.Sleep(time.Second)
				b, err = k.Bulk(t.Context(), b.ID)
				kit.NoErr(t, err)
			}
			return b
		}
		carryOut(perdure.BulkExport, "echo")
		archived := carryOut(perdure.BulkArchive, "ask") // a thread that waits stays, which it reports
		if len(archived.Errors) != 1 || archived.Errors[0].Thread != "ada-asks" {
			t.Fatalf("the job ended with %+v", archived)
		}
		if n, err := k.UserData(t.Context(), "ada"); err != nil || n.Exports != 2 {
			t.Errorf("there is %+v, %v", n, err)
		}
		k.Stop()
		if rc := eraseUser(t, k.Runtime, "ada"); rc.Erased.Exports != 2 {
			t.Errorf("the receipt says %+v", rc.Erased)
		}
		exports := 0
		for name, err := range p.List(t.Context(), "exports/", "") {
			kit.NoErr(t, err)
			exports++
			_ = name
		}
		if exports != 1 {
			t.Errorf("%d exports are left, want that of the other user", exports)
		}
		left, err := k.Bulk(t.Context(), archived.ID)
		kit.NoErr(t, err)
		if len(left.Errors) != 1 || left.Errors[0].Thread != "" || strings.Contains(left.Errors[0].Error, "ada") {
			t.Errorf("the job still says %+v", left.Errors)
		}
	})
}

// TestAWorkerCompletesTheEraseOfAUser that died.
func TestAWorkerCompletesTheEraseOfAUser(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		t.Cleanup(upkeep.SetSweepInterval(time.Second))
		s := memstore.New()
		p, _ := newPlace(t)
		k := kit.New(t, s, perdure.Options{Archive: p}, flows()...)
		fill(t, k, "ada", "mark")
		if !dieErasing(t, s, p, faulty.AtWrite(5, faulty.CrashAfter), "ada") {
			t.Fatal("it did not die")
		}
		if _, err := k.UserReceipt(t.Context(), "ada"); !errors.Is(err, perdure.ErrBusy) {
			t.Fatalf("UserReceipt: %v", err)
		}
		k = kit.New(t, s, perdure.Options{Archive: p}, flows()...)
		k.Until("the erase has ended", func() bool {
			_, err := k.UserReceipt(t.Context(), "ada")
			return err == nil
		})
		k.Stop()
		if n, err := k.UserData(t.Context(), "ada"); err != nil || *n != (perdure.UserData{}) {
			t.Errorf("there is still %+v, %v", n, err)
		}
	})
}

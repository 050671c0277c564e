package lifecycle_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/kit"
	"github.com/perdure/perdure/store/faulty"
	"github.com/perdure/perdure/store/memstore"
)

// An erase that fails before it has decided, as on a full disk, leaves a thread whose run
// goes on and spawns children, and that can be erased.
func TestAThreadWhoseEraseFailedGoesOn(t *testing.T) {
	flows := []perdure.Flow{kit.EchoFlow("echo"), perdure.NewFlow("spawns", func(ctx context.Context, in string) (string, error) {
		if err := perdure.Sleep(ctx, "nap", time.Hour); err != nil {
			return "", err
		}
		child, err := perdure.Spawn(ctx, "child", "echo", in)
		if err != nil {
			return "", err
		}
		return perdure.Join[string](ctx, "join", child)
	})}
	for n := 1; n <= 4; n++ { // the fourth decides
		kit.Bubble(t, fmt.Sprint(n), func(t *testing.T) {
			s := memstore.New()
			k := kit.New(t, s, perdure.Options{}, flows...)
			k.StartOn("t", "spawns", "tea")
			time.Sleep(time.Minute)
			full := faulty.New(s, func(c faulty.Call) faulty.Fault {
				if c.W >= n {
					return faulty.FailBefore
				}
				return faulty.None
			})
			if err := kit.Runtime(t, full, perdure.Options{}, flows...).Erase(t.Context(), "t", perdure.EraseOptions{}); err == nil {
				t.Fatal("the erase succeeds")
			}
			time.Sleep(2 * time.Hour)
			if run := k.WaitFor("t", perdure.Succeeded); len(run.Children) != 1 {
				t.Errorf("the run has the children %v", run.Children)
			}
			_, err := k.Fork(t.Context(), perdure.ForkRequest{Thread: "t", As: "copy"})
			kit.NoErr(t, err)
			kit.NoErr(t, k.Erase(t.Context(), "t", perdure.EraseOptions{Dependents: true}))
			k.Stop()
			kit.WantNothing(t, s)
		})
	}
}

// A thread at rest whose erase failed is there, and a fork says what keeps it from being
// forked.
func TestAForkAfterAnEraseThatFailed(t *testing.T) {
	refused := 0
	for n := 1; n <= 4; n++ {
		kit.Bubble(t, fmt.Sprint(n), func(t *testing.T) {
			s := memstore.New()
			rt := kit.Runtime(t, s, perdure.Options{})
			_, err := rt.Create(t.Context(), perdure.CreateRequest{Thread: "t"})
			kit.NoErr(t, err)
			full := faulty.New(s, func(c faulty.Call) faulty.Fault {
				if c.W >= n {
					return faulty.FailBefore
				}
				return faulty.None
			})
			if err := kit.Runtime(t, full, perdure.Options{}).Erase(t.Context(), "t", perdure.EraseOptions{}); err == nil {
				t.Fatal("the erase succeeds")
			}
			if _, err := rt.Fork(t.Context(), perdure.ForkRequest{Thread: "t", As: "copy"}); err != nil {
				kit.WantErr(t, "a fork", err, perdure.ErrErased)
				if !strings.Contains(err.Error(), "change its title") {
					t.Errorf("the error does not say what to do: %v", err)
				}
				refused++
				title := "kept"
				kit.NoErr(t, rt.SetMetadata(t.Context(), "t", &title, nil, perdure.Note{}))
				_, err := rt.Fork(t.Context(), perdure.ForkRequest{Thread: "t", As: "copy"})
				kit.NoErr(t, err)
			}
			kit.NoErr(t, rt.Erase(t.Context(), "t", perdure.EraseOptions{Dependents: true}))
			kit.WantNothing(t, s)
		})
	}
	if refused == 0 {
		t.Error("no erase left anything that keeps the thread from being forked")
	}
}

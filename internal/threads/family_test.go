package threads_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/kit"
)

// familyOf returns a family as text, indented by generation.
func familyOf(t *testing.T, rt *perdure.Runtime, thread string) string {
	t.Helper()
	f, err := rt.Family(t.Context(), thread)
	kit.NoErr(t, err)
	depth := map[string]int{}
	var text strings.Builder
	for i, m := range f.Members {
		if m.From != "" {
			depth[m.ID] = depth[m.From] + 1
		} else if i > 0 {
			t.Errorf("%s comes from nobody", m.ID)
		}
		fmt.Fprintf(&text, "%s%s %s %d %s\n", strings.Repeat(" ", depth[m.ID]), m.ID, m.Kind, m.At, m.Status)
	}
	return text.String()
}

func TestFamilyIsTheSameForAllItsMembers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		parent := perdure.NewFlow("parent", func(ctx context.Context, child string) (string, error) {
			c, err := perdure.Spawn(ctx, "spawn", "leaf", child)
			if err != nil {
				return "", err
			}
			return perdure.Join[string](ctx, "join", c)
		})
		k := kit.New(t, nil, perdure.Options{}, parent, kit.EchoFlow("leaf"))
		k.MustStart(perdure.StartRequest{Thread: "top", Flow: "parent", Input: "x", User: "ann"})
		run := k.WaitFor("top", perdure.Succeeded)
		child := run.Children[0].Thread
		at := run.Seq
		for _, f := range []perdure.ForkRequest{{Thread: "top", As: "fork"}, {Thread: "fork", As: "of-fork"}, {Thread: child, As: "of-child"}} {
			time.Sleep(time.Second) // forks are listed in the order of their creation
			fork, err := k.Fork(t.Context(), f)
			kit.NoErr(t, err)
			if f.As == "fork" {
				at = fork.At
			}
		}
		k.MustStart(perdure.StartRequest{Thread: "stranger", Flow: "leaf", Input: "x"})
		synctest.Wait()
		whole := familyOf(t, k.Runtime, "top")
		for _, want := range []string{"top  0 succeeded\n", "\n " + child + " child 0 succeeded\n  of-child fork ", fmt.Sprintf("\n fork fork %d succeeded\n  of-fork fork ", at)} {
			if !strings.Contains("\n"+whole, want) && !strings.Contains(whole, want) {
				t.Errorf("it lacks %q:\n%s", want, whole)
			}
		}
		for _, one := range []string{child, "fork", "of-fork", "of-child"} {
			if got := familyOf(t, k.Runtime, one); got != whole {
				t.Errorf("for %s it is\n%s, not\n%s", one, got, whole)
			}
		}
		if got := familyOf(t, k.Runtime, "stranger"); got != "stranger  0 succeeded\n" {
			t.Errorf("the stranger has %s", got)
		}
		if got := familyOf(t, k.Runtime.User("ann"), "fork"); got != whole {
			t.Errorf("its owner sees\n%s", got)
		}
		kit.NoErr(t, k.Erase(t.Context(), "of-fork", perdure.EraseOptions{}))
		if got := familyOf(t, k.Runtime, "top"); strings.Contains(got, "of-fork") || len(strings.Split(got, "\n")) != 5 {
			t.Errorf("after an erase it is\n%s", got)
		}
	})
}

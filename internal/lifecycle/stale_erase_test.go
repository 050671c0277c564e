package lifecycle_test

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/kit"
	"github.com/perdure/perdure/store"
	"github.com/perdure/perdure/store/faulty"
	"github.com/perdure/perdure/store/memstore"
)

// An erase that depends on the thread's sequence is interrupted at each of its
// writes, and then the thread advances: it is as if nobody had asked for the
// erase.
func TestEraseAtASequenceThatIsCutOffLeavesTheThreadWhole(t *testing.T) {
	lived, gone := 0, 0
	for cut, plan := range faulty.Sweep(faulty.CrashBefore, faulty.CrashAfter) {
		synctest.Test(t, func(t *testing.T) {
			s := memstore.New()
			k := kit.New(t, s, perdure.Options{}, kit.EchoFlow("echo"))
			k.StartOn("t", "echo", "")
			k.WaitFor("t", perdure.Succeeded)
			synctest.Wait()
			seq := k.SeqOf("t")
			cutOff, err := perdure.New(t.Context(), faulty.New(s, plan), perdure.Options{Version: "test"}, kit.EchoFlow("echo"))
			if err == nil {
				err = cutOff.Erase(t.Context(), "t", perdure.EraseOptions{Note: perdure.Note{IfSeq: seq}})
			}
			if _, getErr := k.Get(t.Context(), "t"); getErr != nil {
				gone++
				return
			}
			if err == nil {
				t.Fatalf("%s: the erase left the thread, and says nothing", cut)
			}
			lived++
			title := "new"
			kit.WantErr(t, cut+": the change", k.SetMetadata(t.Context(), "t", &title, nil, perdure.Note{}), nil)
			wantStale(t, cut+": the erase again", k.Erase(t.Context(), "t", perdure.EraseOptions{Note: perdure.Note{IfSeq: seq}}), "t", seq+1)
			if _, err := k.Fork(t.Context(), perdure.ForkRequest{Thread: "t", As: "f"}); err != nil {
				t.Errorf("%s: a fork of the thread that was left: %v", cut, err)
			}
			kit.WantErr(t, cut+": erase of what is pinned", k.Erase(t.Context(), "t", perdure.EraseOptions{Note: perdure.Note{IfSeq: seq + 1}}), perdure.ErrPinned)
			kit.WantErr(t, cut+": erase with its fork", k.Erase(t.Context(), "t", perdure.EraseOptions{Dependents: true}), nil)
		})
	}
	if lived < 3 || gone < 3 {
		t.Errorf("the thread lived %d times and was gone %d times: the sweep cut something else", lived, gone)
	}
}

// A run spawns a child while the gate of its thread is closed by an erase that
// then finds that the thread has moved on.
func TestRunSpawnsBesideAnEraseThatComesTooLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := memstore.New()
		step, leave := make(chan struct{}), make(chan struct{})
		parent := perdure.NewFlow("parent", func(ctx context.Context, _ string) (string, error) {
			if _, err := perdure.Step(ctx, "wait", func(context.Context) (int, error) {
				close(step)
				<-leave
				return 1, nil
			}); err != nil {
				return "", err
			}
			c, err := perdure.Spawn(ctx, "spawn", "echo", "hi")
			if err != nil {
				return "", err
			}
			return perdure.Join[string](ctx, "join", c)
		})
		k := kit.New(t, s, perdure.Options{}, kit.EchoFlow("echo"), parent)
		k.StartOn("t", "parent", "")
		<-step
		seq := k.SeqOf("t")
		moved := false
		slow, err := perdure.New(t.Context(), faulty.New(s, func(c faulty.Call) faulty.Fault {
			if strings.HasPrefix(c.Name, "thread/") && c.Op == store.OpAppend && !moved {
				moved = true
				close(leave)
				synctest.Wait() // the run goes as far as it can
			}
			return faulty.None
		}), perdure.Options{}, kit.EchoFlow("echo"), parent)
		kit.NoErr(t, err)
		kit.WantErr(t, "the erase", slow.Erase(t.Context(), "t", perdure.EraseOptions{Note: perdure.Note{IfSeq: seq}}), perdure.ErrStale)
		if !moved {
			t.Fatal("nothing came between")
		}
		k.WaitFor("t", perdure.Succeeded)
		kit.WantErr(t, "erase of what has a child", k.Erase(t.Context(), "t", perdure.EraseOptions{}), perdure.ErrPinned)
	})
}

// A fork comes while an erase has closed the gate, at the sequence that it
// depends on.
func TestForkDoesNotPassTheGateOfAnEraseThatMayHappen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := memstore.New()
		k := kit.New(t, s, perdure.Options{}, kit.EchoFlow("echo"))
		k.StartOn("t", "echo", "")
		k.WaitFor("t", perdure.Succeeded)
		synctest.Wait()
		seq := k.SeqOf("t")
		between := false
		slow, err := perdure.New(t.Context(), faulty.New(s, func(c faulty.Call) faulty.Fault {
			if strings.HasPrefix(c.Name, "thread/") && c.Op == store.OpAppend && !between {
				between = true
				_, err := k.Fork(t.Context(), perdure.ForkRequest{Thread: "t", As: "f"})
				kit.WantErr(t, "the fork", err, perdure.ErrErased)
			}
			return faulty.None
		}), perdure.Options{}, kit.EchoFlow("echo"))
		kit.NoErr(t, err)
		kit.WantErr(t, "the erase", slow.Erase(t.Context(), "t", perdure.EraseOptions{Note: perdure.Note{IfSeq: seq}}), nil)
		if !between {
			t.Fatal("nothing came between")
		}
		_, err = k.Get(t.Context(), "f")
		kit.WantErr(t, "what is left of the fork", err, perdure.ErrNoThread)
	})
}

// One erase closes the gate at a sequence and comes too late. In the meantime
// another, which depends on no sequence, has reached the gate, and it reaches
// its entry when the first is done.
func TestEraseDoesNotRelyOnAGateThatIsOpenedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := memstore.New()
		k := kit.New(t, s, perdure.Options{}, kit.EchoFlow("echo"))
		k.StartOn("t", "echo", "")
		k.WaitFor("t", perdure.Succeeded)
		synctest.Wait()
		seq := k.SeqOf("t")
		at := func(do func()) *perdure.Runtime { // which does something before the entry of its erase
			first := true
			rt, err := perdure.New(t.Context(), faulty.New(s, func(c faulty.Call) faulty.Fault {
				if strings.HasPrefix(c.Name, "thread/") && c.Op == store.OpAppend && first {
					first = false
					do()
				}
				return faulty.None
			}), perdure.Options{}, kit.EchoFlow("echo"))
			kit.NoErr(t, err)
			return rt
		}
		late, done := make(chan struct{}), make(chan error, 1)
		plain := at(func() { <-late })
		tooLate := at(func() {
			title := "new"
			kit.WantErr(t, "the change", k.SetMetadata(t.Context(), "t", &title, nil, perdure.Note{}), nil)
			go func() { done <- plain.Erase(t.Context(), "t", perdure.EraseOptions{}) }()
			synctest.Wait()
		})
		kit.WantErr(t, "the erase that is too late", tooLate.Erase(t.Context(), "t", perdure.EraseOptions{Note: perdure.Note{IfSeq: seq}}), perdure.ErrStale)
		_, err := k.Fork(t.Context(), perdure.ForkRequest{Thread: "t", As: "f"})
		kit.WantErr(t, "the fork", err, perdure.ErrErased)
		close(late)
		kit.WantErr(t, "the other erase", <-done, nil)
		_, err = k.Get(t.Context(), "f")
		kit.WantErr(t, "what is left of the fork", err, perdure.ErrNoThread)
	})
}

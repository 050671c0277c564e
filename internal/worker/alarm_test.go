package worker_test

import (
	"context"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/kit"
	"github.com/perdure/perdure/store"
	"github.com/perdure/perdure/store/memstore"
)

// keysOf returns the keys below a prefix.
func keysOf(t *testing.T, s store.Store, prefix string) []string {
	t.Helper()
	var keys []string
	for cell, err := range s.List(t.Context(), prefix, "") {
		kit.NoErr(t, err)
		keys = append(keys, cell.Key)
	}
	return keys
}

// dozing returns a flow that sleeps as long as its input says, in seconds, and
// returns how much later it wakes than it should.
func dozing() perdure.Flow {
	return perdure.NewFlow("doze", func(ctx context.Context, seconds int) (string, error) {
		until := perdure.Now(ctx).Add(time.Duration(seconds) * time.Second)
		if err := perdure.Sleep(ctx, "doze", time.Duration(seconds)*time.Second); err != nil {
			return "", err
		}
		return time.Since(until).String(), nil
	})
}

// A timer that is far ahead is not among the hints that workers go through, and
// still wakes its run in time, even on a worker that started later.
func TestFarTimersSleepWithoutAHintAndWakeInTime(t *testing.T) {
	for _, seconds := range []int{1, 9, 10, 11, 12, 59, 600} {
		for name, disturb := range map[string]func(k *kit.Kit, s store.Store) *kit.Kit{
			"by the same worker": func(k *kit.Kit, _ store.Store) *kit.Kit { return k },
			"after a restart": func(k *kit.Kit, s store.Store) *kit.Kit {
				k.Stop()
				return kit.New(k.T, s, perdure.Options{}, dozing())
			},
			"by one of two": func(k *kit.Kit, s store.Store) *kit.Kit {
				kit.New(k.T, s, perdure.Options{}, dozing())
				return k
			},
			"after a look at the thread": func(k *kit.Kit, _ store.Store) *kit.Kit {
				kit.NoErr(k.T, k.Pause(k.T.Context(), "t", "", perdure.Note{}))
				kit.NoErr(k.T, k.Resume(k.T.Context(), "t", "", perdure.Note{}))
				return k
			},
		} {
			kit.Bubble(t, name, func(t *testing.T) {
				s := memstore.New()
				k := kit.New(t, s, perdure.Options{}, dozing())
				k.StartOn("t", "doze", seconds)
				synctest.Wait()
				k = disturb(k, s)
				time.Sleep(500 * time.Millisecond) // a look may be too early, and is repeated
				synctest.Wait()
				hints, alarms := keysOf(t, s, "due/"), keysOf(t, s, "alarm/")
				if far := seconds > 10; far && (len(hints) != 0 || len(alarms) != 1) || !far && (len(hints) != 1 || len(alarms) != 0) {
					t.Errorf("asleep for %d s it has the hints %q and the alarms %q", seconds, hints, alarms)
				}
				time.Sleep(time.Duration(seconds)*time.Second + time.Second)
				synctest.Wait()
				run := k.WaitFor("t", perdure.Succeeded)
				late, err := perdure.Output[string](run)
				if d, parseErr := time.ParseDuration(late); err != nil || parseErr != nil || d < 0 || d > 100*time.Millisecond {
					t.Errorf("after %d s it woke %q too late, %v", seconds, late, err)
				}
				if left := append(keysOf(t, s, "due/"), keysOf(t, s, "alarm/")...); len(left) != 0 {
					t.Errorf("left are %q", left)
				}
			})
		}
	}
}

// Names end with a hash of tenant and user, which is no text of theirs, and
// sort by creation whoever owns the thread.
func TestNamesEndWithTheirOwner(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := memstore.New()
		rt := kit.Runtime(t, s, perdure.Options{}, dozing())
		owner := map[string]string{}
		for i, who := range []string{"/ann", "/bob", "/ann", "/", "acme/ann", "acme/", "acme/ann"} {
			time.Sleep(time.Millisecond)
			tenant, user, _ := strings.Cut(who, "/")
			before := keysOf(t, s, "thread/")
			thread := string(rune('a' + i))
			if _, err := rt.Tenant(tenant).Start(t.Context(), perdure.StartRequest{Flow: "doze", Input: 1, Thread: thread, User: user}); err != nil {
				t.Fatal(err)
			}
			after := keysOf(t, s, "thread/")
			name := after[slices.IndexFunc(after, func(key string) bool { return !slices.Contains(before, key) })]
			part, incarnation, _ := strings.Cut(strings.TrimPrefix(name, "thread/"), ".")
			if len(incarnation) < 40 || strings.Contains(name, "ann") || strings.Contains(name, "acme") {
				t.Errorf("the thread of %s is called %s", who, name)
			}
			for _, other := range before {
				if strings.HasPrefix(other, "thread/"+part+".") && other > name {
					t.Errorf("%s is newer than %s", name, other)
				}
			}
			end := incarnation[len(incarnation)-8:]
			if known, ok := owner[who]; ok && known != end {
				t.Errorf("threads of %s end with %s and %s", who, known, end)
			}
			owner[who] = end
			if !slices.Contains(keysOf(t, s, "due/"), "due/doze/"+end+"/"+part+"."+incarnation) {
				t.Errorf("no hint of %s is below its owner: %q", who, keysOf(t, s, "due/"))
			}
		}
		ends := map[string]string{}
		for who, end := range owner {
			if other, ok := ends[end]; ok {
				t.Errorf("%s and %s have one owner's hash", who, other)
			}
			ends[end] = who
		}
	})
}

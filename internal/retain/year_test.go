package retain_test

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/kit"
	"github.com/perdure/perdure/store/memstore"
)

// yearThread is what a thread of the year should become.
type yearThread struct {
	tenant, id, flow string
	last             time.Time // its last change, or that of what depends on it
	stays            bool      // for ever: it waits, or nobody has seen that it has failed
	sum              [sha256.Size]byte
}

// yearRules are the rules of the year.
var yearRules = []perdure.Retention{
	{Tenant: "acme", Flow: "echo", Keep: 5 * day},
	{Tenant: "acme", Keep: 10 * day, Archive: true, KeepArchived: 20 * day},
	{Tenant: "calm", Forever: true},
	{Keep: 15 * day, Archive: true},
}

// TestYear lets a year pass, or some weeks in its short form, with workers that are killed. Nothing is lost that should
// stay, nothing is left that should go, and what is in the archive comes back byte for
// byte.
func TestYear(t *testing.T) {
	n, weeks := kit.Sized(40, 10_400, 10_400), kit.Sized(5, 52, 52)
	kit.Bubble(t, fmt.Sprint(n), func(t *testing.T) {
		ctx, s := t.Context(), memstore.New()
		o := perdure.Options{Archive: attic(t), Lease: 10 * time.Minute, Retention: yearRules}
		rnd := rand.New(rand.NewPCG(1, 2))
		rt := kit.Runtime(t, s, o, flows(nil)...)
		tenants := map[string]*perdure.Runtime{"": rt, "acme": rt.Tenant("acme"), "calm": rt.Tenant("calm")}
		var all []*yearThread
		sum := func(y *yearThread) [sha256.Size]byte {
			var file bytes.Buffer
			kit.NoErr(t, tenants[y.tenant].Export(ctx, y.id, &file, perdure.ExportOptions{}))
			return sha256.Sum256(bytes.Join(kit.ExportedEntries(file.Bytes()), []byte("\n")))
		}
		worker := kit.NewMortal(t, s, o) // without flows, it has less to do in a year
		for week := range weeks {
			crew := kit.New(t, s, o, flows(nil)...)
			var fresh []*yearThread
			for i := range n / weeks {
				y := &yearThread{tenant: []string{"", "acme", "calm"}[i%3], id: fmt.Sprintf("t-%d-%d", week, i), flow: []string{"echo", "parent", "broken", "ask", "echo"}[rnd.IntN(5)]}
				input := ""
				if y.flow == "parent" {
					input = "echo"
				}
				kit.Start(t, tenants[y.tenant], perdure.StartRequest{Thread: y.id, Flow: y.flow, Input: input})
				fresh = append(fresh, y)
			}
			time.Sleep(time.Minute)
			for _, y := range fresh {
				rt := tenants[y.tenant]
				run, err := rt.GetRun(ctx, y.id, "")
				kit.NoErr(t, err)
				switch y.flow {
				case "broken":
					if y.stays = rnd.IntN(20) == 0; !y.stays {
						kit.NoErr(t, rt.MarkSeen(ctx, y.id, perdure.Note{By: "ann"}))
					}
				case "ask":
					if y.stays = rnd.IntN(4) > 0; !y.stays {
						kit.NoErr(t, rt.Cancel(ctx, y.id, run.ID, perdure.Note{}))
					}
				case "parent":
					child, err := perdure.Output[string](run)
					kit.NoErr(t, err)
					all = append(all, &yearThread{tenant: y.tenant, id: child, flow: "parent", last: time.Now()})
				case "echo":
					if rnd.IntN(10) == 0 { // its fork goes first
						_, err := rt.Fork(ctx, perdure.ForkRequest{Thread: y.id, As: "fork-" + y.id})
						kit.NoErr(t, err)
						all = append(all, &yearThread{tenant: y.tenant, id: "fork-" + y.id, flow: "echo", last: time.Now()})
					}
				}
			}
			time.Sleep(time.Minute)
			all = append(all, fresh...)
			for _, y := range all[max(0, len(all)-3*len(fresh)):] {
				if y.sum == [sha256.Size]byte{} {
					y.last, y.sum = time.Now(), sum(y)
				}
			}
			crew.Stop()
			time.Sleep(7*day - 2*time.Minute)
			if week%5 == 4 {
				worker.Die()
				worker.Stop() // it would try again and again
				worker = kit.NewMortal(t, s, o)
			}
		}
		time.Sleep(5 * time.Minute)
		seen := map[string]int{}
		for i, y := range all {
			rt := tenants[y.tenant]
			_, err := rt.Get(ctx, y.id)
			got := "here"
			switch {
			case errors.Is(err, perdure.ErrArchived):
				got = "archived"
			case errors.Is(err, perdure.ErrNoThread):
				got = "gone"
			default:
				kit.NoErr(t, err)
			}
			seen[got]++
			if want := y.now(); got != want && want != "" {
				t.Errorf("thread %s of %q, %s, at rest since %v, is %s, want %s", y.id, y.tenant, y.flow, time.Since(y.last), got, want)
			}
			if got == "archived" && (n < 1000 || i%10 == 0) {
				kit.NoErr(t, rt.Restore(ctx, y.id, perdure.RestoreOptions{}))
				got = "here"
			}
			if got == "here" && !y.stays && sum(y) != y.sum {
				t.Errorf("thread %s of %q is not what it was", y.id, y.tenant)
			}
		}
		if seen["here"] == 0 || seen["archived"] == 0 || seen["gone"] == 0 {
			t.Errorf("%v", seen)
		}
		t.Log(seen)
	})
}

// now returns where a thread should be, "" if it is about to move.
func (y *yearThread) now() string {
	for _, r := range yearRules {
		if r.Tenant != "" && r.Tenant != y.tenant || r.Flow != "" && r.Flow != y.flow {
			continue
		}
		left := func(d time.Duration) time.Duration { return time.Since(y.last) - d }
		switch {
		case r.Forever, y.stays, left(r.Keep) < 0:
			return "here"
		case left(r.Keep) < 2*time.Hour:
			return ""
		case !r.Archive:
			return "gone"
		case r.KeepArchived == 0 || left(r.Keep+r.KeepArchived) < 0:
			return "archived"
		case left(r.Keep+r.KeepArchived) < 4*time.Hour:
			return ""
		default:
			return "gone"
		}
	}
	return "here"
}

package migrate_test

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/agent"
	"github.com/perdure/perdure/agent/credentials"
	"github.com/perdure/perdure/agent/memory"
	"github.com/perdure/perdure/api"
	"github.com/perdure/perdure/internal/blob"
	"github.com/perdure/perdure/internal/kit"
	"github.com/perdure/perdure/internal/migrate"
	"github.com/perdure/perdure/server"
	"github.com/perdure/perdure/store"
	"github.com/perdure/perdure/store/faulty"
	"github.com/perdure/perdure/store/memstore"
	"github.com/perdure/perdure/store/seal"
)

// keys seal credentials in stores that are not sealed themselves.
var keys = "env:" + strings.Repeat("B", 43) + "="

const secret = "the sesame of ann"

// sizes are those of values that are kept in their entry, just not, and in several
// cells.
var sizes = []int{blob.Inline - 2, blob.Inline - 1, store.MaxEntry, store.MaxEntry + 1, 3 << 20}

// sized returns a text of so many bytes, with no two equal parts.
func sized(n int) string {
	var b strings.Builder
	for i := 0; b.Len() < n; i++ {
		fmt.Fprintf(&b, "%d ", i)
	}
	return b.String()[:n]
}

// useFlows are for what belongs to no thread.
var useFlows = []perdure.Flow{
	perdure.NewFlow("sized", func(ctx context.Context, n int) (string, error) {
		return perdure.Step(ctx, "make", func(context.Context) (string, error) { return sized(n), nil })
	}),
	perdure.NewFlow("open", func(ctx context.Context, _ string) (bool, error) {
		got, err := credentials.Secret(ctx, "door")
		return got == secret, err
	}),
}

// more is what fillMore has created last.
var more struct {
	token  string // its secret
	sizes  []int  // of outputs
	halves int    // erases that were begun
}

// fillMore adds what belongs to no thread, blobs, and erases that were cut off after
// each of their writes.
func fillMore(k *kit.Kit, s store.Store, sizes []int) {
	t, ctx := k.T, k.T.Context()
	t.Helper()
	more.sizes = sizes
	for _, n := range sizes {
		k.StartOn(fmt.Sprint("sized-", n), "sized", n)
		k.WaitFor(fmt.Sprint("sized-", n), perdure.Succeeded)
	}
	_, err := agent.RulesOf(k.Runtime).Allow(ctx, agent.Rule{User: "ann", Flow: "f", Agent: "clerk", Tool: "pay", Schema: "x", Args: json.RawMessage(`{"to":"x*"}`)}, "boss")
	kit.NoErr(t, err)
	kit.NoErr(t, credentials.Of(k.Runtime).Give(ctx, "ann", "door", secret, "ann"))
	_, err = memory.Of(k.Runtime).Put(ctx, []string{"user", "ann"}, "likes", "tea", memory.PutOptions{})
	kit.NoErr(t, err)
	created, err := server.NewTokens(k.Runtime).Create(ctx, "", "boss", api.CreateToken{Subject: "ann"})
	kit.NoErr(t, err)
	more.token = created.Secret
	_, err = k.PutSchedule(ctx, perdure.ScheduleRequest{ID: "daily", Flow: "sized", Input: 1, User: "ann", Every: 24 * time.Hour})
	kit.NoErr(t, err)
	for n, cut := 1, true; cut; n++ {
		id := fmt.Sprint("half-", n)
		k.StartOn(id, "sized", blob.Inline+1)
		k.WaitFor(id, perdure.Succeeded)
		sick := faulty.New(s, faulty.AtWrite(n, faulty.CrashAfter))
		rt, err := perdure.New(ctx, sick, perdure.Options{})
		if sick.Crashed() {
			kit.NoErr(t, k.Erase(ctx, id, perdure.EraseOptions{}))
			continue // it was only opened
		}
		kit.NoErr(t, err)
		err = rt.Erase(ctx, id, perdure.EraseOptions{})
		if cut = sick.Crashed(); !cut {
			kit.NoErr(t, err)
		}
		more.halves = n
	}
}

// worksOn expects what fillMore has left to work in a store.
func worksOn(k *kit.Kit, s store.Store) {
	t, ctx := k.T, k.T.Context()
	t.Helper()
	for _, n := range more.sizes {
		id := fmt.Sprint("sized-", n)
		run, err := k.GetRun(ctx, id, "")
		kit.NoErr(t, err)
		kit.WantOutput(t, run, sized(n))
		k.MustVerify(id)
	}
	rules, err := agent.RulesOf(k.Runtime).List(ctx, "ann")
	if err != nil || len(rules) != 1 || rules[0].Tool != "pay" {
		t.Errorf("the rules are %+v, %v", rules, err)
	} else {
		kit.NoErr(t, agent.RulesOf(k.Runtime).Revoke(ctx, rules[0].ID, "boss"))
	}
	k.MustStart(perdure.StartRequest{Thread: "door", Flow: "open", User: "ann", Input: ""})
	kit.WantOutput(t, k.WaitFor("door", perdure.Succeeded), true)
	if item, err := memory.Of(k.Runtime).Get(ctx, []string{"user", "ann"}, "likes"); err != nil || string(item.Value) != `"tea"` {
		t.Errorf("the memory is %+v, %v", item, err)
	}
	if s, err := k.User("ann").Schedule(ctx, "daily"); err != nil || s.Flow != "sized" || len(s.Next) != 5 {
		t.Errorf("the schedule is %+v, %v", s, err)
	}
	run, err := k.TriggerSchedule(ctx, "daily", "")
	kit.NoErr(t, err)
	k.WaitFor(run.Thread, perdure.Succeeded)
	kit.NoErr(t, k.DeleteSchedule(ctx, "daily"))
	tokens := server.NewTokens(k.Runtime)
	who, err := tokens.Authenticate(ctx, more.token)
	if err != nil || who.Subject != "ann" {
		t.Errorf("the token is that of %+v, %v", who, err)
	}
	all, err := tokens.List(ctx, "")
	if err != nil || len(all) != 1 {
		t.Fatalf("the tokens are %+v, %v", all, err)
	}
	kit.NoErr(t, tokens.Revoke(ctx, "", all[0].ID))
	k.MustRebuild() // as upkeep does
	alive := 0
	for n := range more.halves {
		id := fmt.Sprint("half-", n+1)
		if _, err := k.Get(ctx, id); err == nil { // it was cut off before there was an erase
			alive++
			kit.NoErr(t, k.Erase(ctx, id, perdure.EraseOptions{}))
		}
		_, err := k.Get(ctx, id)
		kit.WantErr(t, "a thread that was being erased", err, perdure.ErrNoThread)
	}
	if alive > 3 || more.halves < 5 { // the gate, the mark that it is leaving, and its summary come before the erase
		t.Errorf("of %d threads that were being erased %d were still there", more.halves, alive)
	}
	for cell, err := range s.List(ctx, "gate/", "") {
		kit.NoErr(t, err)
		if strings.HasPrefix(string(cell.Value), "erased ") {
			t.Errorf("an erase is not finished: %q is %q", cell.Key, cell.Value)
		}
	}
}

// TestClearCredentials migrates credentials that a sealed store has in clear. They
// get only into a store that is sealed too.
func TestClearCredentials(t *testing.T) {
	ring, err := seal.ParseRing(keys)
	kit.NoErr(t, err)
	sealed := func(s store.Store) store.Store {
		sealed, err := seal.New(t.Context(), s, ring)
		kit.NoErr(t, err)
		return sealed
	}
	from, opts := sealed(memstore.New()), migrate.Options{To: "there", Grace: 1}
	rt := kit.Runtime(t, from, perdure.Options{}, useFlows...)
	held := credentials.Of(rt)
	kit.NoErr(t, held.Give(t.Context(), "ann", "door", secret, "ann"))
	to := memstore.New()
	_, err = migrate.Run(t.Context(), from, to, opts)
	kit.WantErr(t, "to a store that is not sealed", err, perdure.ErrInvalid)
	if got := contents(t, to); len(got) != 0 {
		t.Errorf("the target has %q", got)
	}
	copied, there := sealed(memstore.New()), sealed(to)
	pour(t, from, copied)
	_, err = migrate.Run(t.Context(), copied, there, opts)
	kit.NoErr(t, err)
	k := kit.New(t, there, perdure.Options{}, useFlows...)
	k.MustStart(perdure.StartRequest{Thread: "door", Flow: "open", User: "ann", Input: ""})
	kit.WantOutput(t, k.WaitFor("door", perdure.Succeeded), true)

	// One that is given while the store is copied is left out.
	kit.NoErr(t, held.Forget(t.Context(), "ann", "door"))
	given := false
	opts.Progress = func(p migrate.Progress) {
		if !given {
			given = true
			kit.NoErr(t, held.Give(t.Context(), "ann", "late", secret, "ann"))
		}
	}
	to = memstore.New()
	report, err := migrate.Run(t.Context(), from, to, opts)
	kit.NoErr(t, err)
	if report.Left != 1 {
		t.Errorf("the report is %+v", report)
	}
	for key, value := range contents(t, to) {
		if strings.Contains(value, "clear") {
			t.Errorf("%s is in clear in the target", key)
		}
	}
	if has, err := credentials.Of(kit.Runtime(t, to, perdure.Options{})).Has(t.Context(), "ann", "late"); has || err != nil {
		t.Errorf("the target has it: %v, %v", has, err)
	}
}

// TestACredentialThatCannotBeRead is refused, and the source is not said to be sealed.
func TestACredentialThatCannotBeRead(t *testing.T) {
	from := memstore.New()
	kit.Runtime(t, from, perdure.Options{})
	_, err := from.Put(t.Context(), "shelf/credential/x", []byte("no JSON"), "")
	kit.NoErr(t, err)
	_, err = migrate.Run(t.Context(), from, memstore.New(), migrate.Options{To: "there", Grace: 1})
	kit.WantErr(t, "a migration", err, perdure.ErrInvalid)
	if !strings.Contains(err.Error(), "shelf/credential/x") || strings.Contains(err.Error(), "the source is sealed") {
		t.Errorf("the error is %v", err)
	}
}

package cli

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/cli/internal/exit"
	"github.com/perdure/perdure/store"
	"github.com/perdure/perdure/store/faulty"
)

// TestEraseThatWasKilled: an erase that was killed once nobody can read the thread any
// more is completed by another one.
func TestEraseThatWasKilled(t *testing.T) {
	p := stored(t)
	p.run("", "run", "echo", "tea", "--thread", "t").want(exit.OK)
	s, err := store.Open(t.Context(), p.flags[1])
	if err != nil {
		t.Fatal(err)
	}
	rt, err := perdure.New(t.Context(), faulty.New(s, func(c faulty.Call) faulty.Fault {
		if c.Op == store.OpDrop {
			return faulty.CrashBefore
		}
		return faulty.None
	}), perdure.Options{}, p.flows...)
	if err != nil {
		t.Fatal(err)
	}
	if err := rt.Erase(t.Context(), "t", perdure.EraseOptions{}); !errors.Is(err, faulty.ErrInjected) {
		t.Fatalf("Erase: %v", err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	p.run("", "show", "t").want(exit.NotFound, "was erased")
	p.run("", "erase", "t", "--yes").want(exit.OK)
	p.run("", "erase", "t", "--yes").want(exit.NotFound)
	if r := p.run("", "show", "t").want(exit.NotFound); strings.Contains(r.err, "was erased") {
		t.Errorf("the erase is not complete: %s", r.err)
	}
}

// TestEraseUser erases a user, with a server and directly on a store, and checks the
// receipt without either.
func TestEraseUser(t *testing.T) {
	both(t, func(t *testing.T, p *place) {
		dir := t.TempDir()
		receipt, export := filepath.Join(dir, "receipt.json"), filepath.Join(dir, "a.jsonl")
		p.run("", "run", "wait", "x", "--thread", "a", "--user", "ann").want(exit.Waiting)
		p.run("", "run", "wait", "x", "--thread", "b", "--user", "bob").want(exit.Waiting)
		p.run("", "fork", "a", "--as", "copy").want(exit.OK)
		p.run("", "export", "copy", "-o", export).want(exit.OK)
		p.run("", "erase").want(exit.BadUsage, "name a thread, or a user")
		p.run("", "erase", "a", "--user", "ann").want(exit.BadUsage, "name a thread, or a user")
		p.run("", "erase", "a", "--dry-run").want(exit.BadUsage, "for --user")
		p.run("", "erase", "--user", "", "--yes").want(exit.BadUsage)
		p.run("", "erase", "--user", "ann", "--dry-run").want(exit.OK, "2 threads")
		p.run("", "erase", "--user", "ann").want(exit.BadUsage, "erase everything of user ann for good: 2 threads: confirm it with --yes")
		p.run("", "receipt", "show", "ann").want(exit.NotFound, "nothing of this user was erased")
		p.run("", "erase", "--user", "ann", "--yes", "-o", filepath.Join(dir, "none", "receipt.json")).want(exit.Failed, "no such file")
		p.run("", "erase", "--user", "ann", "--dry-run").want(exit.OK, "2 threads")
		p.run("", "erase", "--user", "ann", "--yes", "-o", receipt).want(exit.OK, "erased: 2 threads")
		if r := p.run("", "threads"); strings.Contains(r.out, "copy") || !strings.Contains(r.out, "b   wait") {
			t.Errorf("left are\n%s", r.out)
		}
		p.run("", "erase", "--user", "ann", "--dry-run").want(exit.OK, "nothing")
		p.run("", "erase", "--user", "ann", "--yes", "-o", receipt).want(exit.BadUsage, "exists")
		p.run("", "receipt", "show", "ann").want(exit.OK, `"sig"`)
		p.run("", "receipt", "verify", receipt).want(exit.OK, "2 threads", "signed by")
		p.run("", "receipt", "verify", receipt, export).want(exit.OK, "2 threads")
		other := filepath.Join(dir, "b.jsonl")
		p.run("", "export", "b", "-o", other).want(exit.OK)
		if r := p.run("", "export", "b", "-o", "-"); !strings.HasPrefix(r.out, "{") {
			t.Errorf("an export to the standard output is %.80q", r.out)
		}
		p.run("", "receipt", "verify", receipt, other).want(exit.Failed, "does not cover thread b")
		raw, err := os.ReadFile(receipt)
		if err != nil || strings.Contains(string(raw), "ann") {
			t.Errorf("%v: %s", err, raw)
		}
		if err := os.WriteFile(receipt, []byte(strings.Replace(string(raw), `"threads": 2`, `"threads": 1`, 1)), 0o600); err != nil {
			t.Fatal(err)
		}
		p.run("", "receipt", "verify", receipt).want(exit.Failed, "signature")
		p.run("", "receipt", "verify", export).want(exit.Failed, "this is no receipt")
	})
}

package cli

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/perdure/perdure/cli/internal/exit"
)

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
		p.run("", "receipt", "show", "ann").want(exit.Conflict)
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
		p.run("", "receipt", "verify", receipt, other).want(exit.Failed, "does not cover thread b")
		raw, err := os.ReadFile(receipt)
		if err != nil || strings.Contains(string(raw), "ann") {
			t.Errorf("%v: %s", err, raw)
		}
		if err := os.WriteFile(receipt, []byte(strings.Replace(string(raw), `"threads": 2`, `"threads": 1`, 1)), 0o600); err != nil {
			t.Fatal(err)
		}
		p.run("", "receipt", "verify", receipt).want(exit.BadUsage, "signature")
	})
}

package cli

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/perdure/perdure/cli/internal/exit"
)

// TestWhatIsVerified: a thread before a file of the same name, unless that is
// meant.
func TestWhatIsVerified(t *testing.T) {
	p := stored(t)
	t.Chdir(t.TempDir())
	p.run("", "run", "echo", "x", "--thread", "t").want(exit.OK)
	if err := os.WriteFile("t", []byte("no export"), 0o600); err != nil {
		t.Fatal(err)
	}
	p.run("", "verify", "t").want(exit.OK, "good: thread t")
	if r := p.run("", "verify", "./t"); r.code == exit.OK {
		t.Errorf("the file is good: %s", r.out)
	}
	p.run("", "export", "t", "-o", "u").want(exit.OK)
	p.run("", "verify", "u").want(exit.OK, "good: thread t")
	(&place{t: t}).run("", "verify", "u").want(exit.OK, "good: thread t")
	p.run("", "verify", ".").want(exit.BadUsage, "is a folder")
	p.run("", "import", ".").want(exit.BadUsage, "is a folder")
	p.run("", "import", "u").want(exit.Conflict, "--as")
}

// TestImportOfATrustedKey shows who vouches for what was imported.
func TestImportOfATrustedKey(t *testing.T) {
	p, q := stored(t), stored(t)
	file := filepath.Join(t.TempDir(), "t.jsonl")
	p.run("", "run", "echo", "x", "--thread", "t").want(exit.OK)
	p.run("", "export", "t", "-o", file).want(exit.OK)
	_, key, _ := strings.Cut(p.run("", "verify", file).want(exit.OK).out, "signed by ")
	key = strings.TrimSpace(key)
	q.run("", "import", file).want(exit.OK).only("t\n")
	q.run("", "show", "t").want(exit.OK, "not signed by a trusted key")
	q.run("", "import", file, "--as", "u", "--trust-key", key).want(exit.OK).only("u\n")
	q.run("", "show", "u").want(exit.OK, "imported t up to", "signed by "+key)
	q.run("", "threads").want(exit.OK, "succeeded, imported")
	q.run("", "import", file, "--as", "v", "--trust-key", "nonsense").want(exit.BadUsage, "not a public key")
}

func TestFilesAreExportedVerifiedAndImported(t *testing.T) {
	both(t, func(t *testing.T, p *place) {
		p.asked("t", "order", "tea")
		file := filepath.Join(t.TempDir(), "t.jsonl")
		p.run("", "export", "t", "-o", file).want(exit.OK, "perdure verify")
		p.run("", "export", "t", "-o", file).want(exit.BadUsage, "exists")
		data, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		p.run("", "verify", file).want(exit.OK, "good: thread t")
		p.run("", "verify", "t").want(exit.OK, "good: thread t")
		p.run("", "verify", "nope").want(exit.NotFound)
		p.run("", "import", file).want(exit.Conflict)
		p.run(string(data), "import", "-", "--as", "copy").want(exit.OK).only("copy\n")
		p.run("", "show", "copy").want(exit.OK, "paused")
		p.run("", "import", file+"x").want(exit.NotFound)
		if err := os.WriteFile(file, []byte(strings.Replace(string(data), "tea", "tee", 1)), 0o600); err != nil {
			t.Fatal(err)
		}
		p.run("", "verify", file).want(exit.Failed, "damaged")
		p.run("", "verify", file, "--json").want(exit.Failed, `"problem"`)
		redacted := p.run("", "export", "t", "--redact").want(exit.OK)
		if strings.Contains(redacted.out, `"tea"`) || strings.Contains(redacted.out, "Buy tea") || !strings.Contains(redacted.out, "\n") {
			t.Errorf("the redacted export is %s", redacted.out)
		}
		p.run("", "erase", "copy").want(exit.BadUsage, "--yes")
		p.setUp = func(a *app) { a.term.Forced = true }
		p.run("n\n", "erase", "copy").want(exit.Failed, "nothing was done")
		p.run("y\n", "erase", "copy").want(exit.OK, "erase thread copy for good? [y/N]")
		p.setUp = nil
		p.run("", "erase", "copy", "--yes").want(exit.NotFound)
		p.run("", "fork", "t", "--as", "child").want(exit.OK)
		p.run("", "erase", "t", "--yes").want(exit.Conflict)
		p.run("", "erase", "t", "--dependents", "--yes").want(exit.OK)
		p.run("", "show", "child").want(exit.NotFound)
	})
}

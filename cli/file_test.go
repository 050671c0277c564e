package cli

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestWhatIsVerified: a thread before a file of the same name, unless that is
// meant.
func TestWhatIsVerified(t *testing.T) {
	p := stored(t)
	t.Chdir(t.TempDir())
	p.run("", "run", "echo", "x", "--thread", "t").want(exitOK)
	if err := os.WriteFile("t", []byte("no export"), 0o600); err != nil {
		t.Fatal(err)
	}
	p.run("", "verify", "t").want(exitOK, "good: thread t")
	if r := p.run("", "verify", "./t"); r.code == exitOK {
		t.Errorf("the file is good: %s", r.out)
	}
	p.run("", "export", "t", "-o", "u").want(exitOK)
	p.run("", "verify", "u").want(exitOK, "good: thread t")
	(&place{t: t}).run("", "verify", "u").want(exitOK, "good: thread t")
	p.run("", "verify", ".").want(exitUsage, "is a folder")
	p.run("", "import", ".").want(exitUsage, "is a folder")
	p.run("", "import", "u").want(exitConflict, "--as")
}

// TestImportOfATrustedKey shows who vouches for what was imported.
func TestImportOfATrustedKey(t *testing.T) {
	p, q := stored(t), stored(t)
	file := filepath.Join(t.TempDir(), "t.jsonl")
	p.run("", "run", "echo", "x", "--thread", "t").want(exitOK)
	p.run("", "export", "t", "-o", file).want(exitOK)
	_, key, _ := strings.Cut(p.run("", "verify", file).want(exitOK).out, "signed by ")
	key = strings.TrimSpace(key)
	q.run("", "import", file).want(exitOK).only("t\n")
	q.run("", "show", "t").want(exitOK, "not signed by a trusted key")
	q.run("", "import", file, "--as", "u", "--trust-key", key).want(exitOK).only("u\n")
	q.run("", "show", "u").want(exitOK, "imported t up to", "signed by "+key)
	q.run("", "threads").want(exitOK, "succeeded, imported")
	q.run("", "import", file, "--as", "v", "--trust-key", "nonsense").want(exitUsage, "no public key")
}

func TestFilesAreExportedVerifiedAndImported(t *testing.T) {
	both(t, func(t *testing.T, p *place) {
		p.asked("t", "order", "tea")
		file := filepath.Join(t.TempDir(), "t.jsonl")
		p.run("", "export", "t", "-o", file).want(exitOK, "perdure verify")
		p.run("", "export", "t", "-o", file).want(exitUsage, "exists")
		data, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		p.run("", "verify", file).want(exitOK, "good: thread t")
		p.run("", "verify", "t").want(exitOK, "good: thread t")
		p.run("", "verify", "nope").want(exitNotFound)
		p.run("", "import", file).want(exitConflict)
		p.run(string(data), "import", "-", "--as", "copy").want(exitOK).only("copy\n")
		p.run("", "show", "copy").want(exitOK, "paused")
		p.run("", "import", file+"x").want(exitNotFound)
		if err := os.WriteFile(file, []byte(strings.Replace(string(data), "tea", "tee", 1)), 0o600); err != nil {
			t.Fatal(err)
		}
		p.run("", "verify", file).want(exitFailed, "damaged")
		p.run("", "verify", file, "--json").want(exitFailed, `"problem"`)
		redacted := p.run("", "export", "t", "--redact").want(exitOK)
		if strings.Contains(redacted.out, `"tea"`) || strings.Contains(redacted.out, "Buy tea") || !strings.Contains(redacted.out, "\n") {
			t.Errorf("the redacted export is %s", redacted.out)
		}
		p.run("", "erase", "copy").want(exitUsage, "--yes")
		p.setUp = func(a *app) { a.term.Forced = true }
		p.run("n\n", "erase", "copy").want(exitFailed, "nothing was done")
		p.run("y\n", "erase", "copy").want(exitOK, "erase thread copy for ever? [y/N]")
		p.setUp = nil
		p.run("", "erase", "copy", "--yes").want(exitNotFound)
		p.run("", "fork", "t", "--as", "child").want(exitOK)
		p.run("", "erase", "t", "--yes").want(exitConflict)
		p.run("", "erase", "t", "--dependents", "--yes").want(exitOK)
		p.run("", "show", "child").want(exitNotFound)
	})
}

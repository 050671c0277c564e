package cluster

import (
	"bytes"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/perdure/perdure/cli"
)

// TestFlags refuses flags that cannot work, with words that say why.
func TestFlags(t *testing.T) {
	open := filepath.Join(t.TempDir(), "secret")
	if err := os.WriteFile(open, []byte("a secret of some length"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(open, 0o644); err != nil {
		t.Fatal(err)
	}
	for want, args := range map[string]string{
		"name it with --cluster":       "serve --join 127.0.0.1:1",
		"name the cluster":             "node",
		"leave --store out":            "node --cluster c --store memory:",
		"--max-disk is a number":       "node --cluster c --max-disk -1",
		"everybody on this machine":    "node --cluster c --cluster-secret-file " + open,
		"belong together":              "node --cluster c --cluster-cert x",
		"cannot be its name":           "serve --cluster a.b",
		"is not among the 3 addresses": "node --cluster c --node 127.0.0.1:4 --join 127.0.0.1:1,127.0.0.1:2,127.0.0.1:3",
	} {
		if runtime.GOOS == "windows" && strings.Contains(args, open) {
			continue
		}
		var out bytes.Buffer
		code := Run(t.Context(), cli.Options{Args: strings.Fields(args), Stdout: &out, Stderr: &out})
		if code == 0 || !strings.Contains(out.String(), want) {
			t.Errorf("%s: code %d, and it does not say %q: %s", args, code, want, out.String())
		}
	}
}

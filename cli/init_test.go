package cli

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/perdure/perdure/cli/internal/exit"
)

// TestInitSaysWhereTheSourceIs, or that one has to say so: the tests may be built with
// -trimpath.
func TestInitSaysWhereTheSourceIs(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "desk")
	out := stored(t).run("", "init", dir).want(exit.OK).out
	mod, err := os.ReadFile(filepath.Join(dir, "go.mod"))
	if err != nil {
		t.Fatal(err)
	}
	replaced := strings.Contains(string(mod), "replace "+perdureModule+" => ")
	if edit := strings.Contains(out, "go mod edit -replace "+perdureModule+"=CLONE\n  go mod tidy\n"); replaced == edit || replaced == strings.Contains(out, "does not know") {
		t.Errorf("with the go.mod\n%s\nit says\n%s", mod, out)
	}
}

func TestSourceAboveAFile(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{"clone/go.mod": "module " + perdureModule + "\n\ngo 1.26.0\n", "clone/sub/go.mod": "module other\n", "go.mod": "module " + perdureModule + "/x\n"} {
		if err := os.MkdirAll(filepath.Dir(filepath.Join(dir, name)), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := writeNew(filepath.Join(dir, name), text); err != nil {
			t.Fatal(err)
		}
	}
	clone := filepath.Join(dir, "clone")
	for file, want := range map[string]string{filepath.Join(clone, "cli/init.go"): clone, filepath.Join(clone, "sub/bin/perdure"): clone, filepath.Join(dir, "bin/perdure"): "", "clone/cli/init.go": ""} {
		if got := sourceAbove(file); got != want {
			t.Errorf("above %s is %q, want %q", file, got, want)
		}
	}
}

// TestModuleNames come from the names of folders.
func TestModuleNames(t *testing.T) {
	for folder, want := range map[string]string{"desk": "desk", "My Desk": "my-desk", "...": "agent", "func": "agent", "ärger": "rger", "a_b-c": "a_b-c"} {
		if got := moduleName(folder); got != want || !modulePath.MatchString(got) {
			t.Errorf("%q makes %q, want %q", folder, got, want)
		}
	}
	for version, want := range map[string]bool{"v1.2.3": true, "v0.1.0-rc.1": true, "(devel)": false, "v0.0.0-20260101000000-0123456789ab": false, "v1.2.3+dirty": false, "": false} {
		if release.MatchString(version) != want {
			t.Errorf("%q: %v", version, !want)
		}
	}
}

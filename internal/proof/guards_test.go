package proof_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/perdure/perdure/internal/kit"
	"github.com/perdure/perdure/internal/pgtest"
)

// A guard is a line or a few of the production code without which something
// goes wrong, in some order of store calls that nobody would meet by chance.
// The tables of guards say for each what the code is without it, and which
// exploration then fails. So they show that the explorations look at every
// guard, and that every guard is needed.
type guard struct {
	name  string
	edits []edit
	with  []string // guards that stand behind it, and are off with it
	test  string   // the explorations that fail without it, as -test.run; "" for one that only stands behind others
	says  string   // what the failure says
}

// edit is a change of a source file, named from the module's root. The old text is there exactly once. In
// the new one OFF stands for whether the guard is off: the code is as before
// if it is not.
type edit struct{ file, old, new string }

// moduleRoot is the folder that the tables of guards name files from.
const moduleRoot = "../.."

// exploring are the test files of this package that explorations need. The
// others, and all that they import, are left out of the build.
var exploring = regexp.MustCompile(`^(explore\w*|norace)_test\.go$`)

// mutants are the test binaries in which guards can be off.
type mutants struct{ dir string }

// binary returns the file of the binary with the explorations of a package.
func (m mutants) binary(pkg string) string {
	return filepath.Join(m.dir, strings.ReplaceAll(pkg, "/", "-")+".test")
}

// build makes the binaries. The sources are left as they are: the go tool is
// shown others in their place.
func build(t *testing.T, guards []guard, pkgs ...string) mutants {
	t.Helper()
	m := mutants{t.TempDir()}
	replace := map[string]string{}
	copies := 0
	put := func(file, text string) {
		copies++
		copied := filepath.Join(m.dir, fmt.Sprintf("%d.go", copies))
		kit.NoErr(t, os.WriteFile(copied, []byte(text), 0o666))
		replace[absolute(t, file)] = copied
	}
	for file, text := range mutated(t, guards) {
		put(file, text)
		name := filepath.Base(filepath.Dir(absolute(t, file)))
		if filepath.Dir(file) == "." {
			name = "perdure"
		}
		put(filepath.Join(filepath.Dir(file), "guard_overlay.go"), "package "+name+switches)
	}
	files, err := filepath.Glob("*_test.go")
	kit.NoErr(t, err)
	for _, file := range files {
		if !exploring.MatchString(file) {
			replace[absolute(t, filepath.Join("internal/proof", file))] = ""
		}
	}
	config, err := json.Marshal(map[string]any{"Replace": replace})
	kit.NoErr(t, err)
	overlay := filepath.Join(m.dir, "overlay.json")
	kit.NoErr(t, os.WriteFile(overlay, config, 0o666))
	for _, pkg := range pkgs {
		goCmd(t, "test", "-c", "-overlay", overlay, "-o", m.binary(pkg), pkg)
	}
	return m
}

func goCmd(t *testing.T, args ...string) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "go", args...)
	cmd.Dir = moduleRoot
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("go %s: %v\n%s", strings.Join(args, " "), err, out)
	}
}

// switches is the file that each package with guards gets.
const switches = `

import (
	"os"
	"slices"
	"strings"
)

var guardsOff = strings.Split(os.Getenv("PERDURE_GUARD"), ",")

func guardOff(name string) bool { return slices.Contains(guardsOff, name) }
`

func absolute(t *testing.T, file string) string {
	t.Helper()
	abs, err := filepath.Abs(filepath.Join(moduleRoot, file))
	kit.NoErr(t, err)
	return abs
}

// mutated returns the files that have guards, with a switch at each.
func mutated(t *testing.T, guards []guard) map[string]string {
	t.Helper()
	type change struct {
		from, to int
		text     string
	}
	changes, texts := map[string][]change{}, map[string]string{}
	for _, g := range guards {
		for _, e := range g.edits {
			if texts[e.file] == "" {
				data, err := os.ReadFile(filepath.Join(moduleRoot, e.file))
				if err != nil {
					t.Fatalf("guard %s: %v", g.name, err)
				}
				texts[e.file] = string(data)
			}
			if n := strings.Count(texts[e.file], e.old); n != 1 {
				t.Fatalf("guard %s: this text is %d times in %s, want once; follow the code with the table of guards:\n%s", g.name, n, e.file, e.old)
			}
			at := strings.Index(texts[e.file], e.old)
			changes[e.file] = append(changes[e.file], change{at, at + len(e.old), strings.ReplaceAll(e.new, "OFF", fmt.Sprintf("guardOff(%q)", g.name))})
		}
	}
	for file, list := range changes {
		slices.SortFunc(list, func(a, b change) int { return b.from - a.from })
		for i, c := range list {
			if i > 0 && c.to > list[i-1].from {
				t.Fatalf("two guards in %s overlap at %q", file, texts[file][c.from:c.to])
			}
			texts[file] = texts[file][:c.from] + c.text + texts[file][c.to:]
		}
	}
	for _, g := range guards {
		found := false
		for _, text := range texts {
			found = found || strings.Contains(text, fmt.Sprintf("(%q)", g.name))
		}
		if !found {
			t.Fatalf("guard %s: no edit has a switch for it", g.name)
		}
	}
	return texts
}

// run runs explorations of a package with guards off, and returns what they
// print and whether they passed.
func (m mutants) run(t *testing.T, pkg, tests string, off ...string) (string, bool) {
	t.Helper()
	// Without a guard an exploration may never end. With all of them it does: how
	// soon is up to the machine, so the test's own deadline is the only bound.
	limit := 380 * time.Second
	if deadline, ok := t.Deadline(); ok && len(off) == 0 {
		limit = time.Until(deadline) - time.Minute
	}
	ctx, cancel := context.WithTimeout(t.Context(), limit+20*time.Second)
	defer cancel()
	cmd := exec.CommandContext(ctx, m.binary(pkg), "-test.run", tests, "-test.timeout", limit.String())
	cmd.Dir = filepath.Join(moduleRoot, pkg)
	cmd.Env = append(slices.DeleteFunc(os.Environ(), func(v string) bool { return strings.HasPrefix(v, "PERDURE_") && !strings.HasPrefix(v, pgtest.Env) }),
		"PERDURE_GUARD="+strings.Join(off, ","))
	out, err := cmd.CombinedOutput()
	if exit := (*exec.ExitError)(nil); err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	if bytes.Contains(out, []byte("no tests to run")) {
		t.Fatalf("no exploration of %s is called %s", pkg, tests)
	}
	return string(out), err == nil
}

func TestExplorationsFailWithoutAGuard(t *testing.T) {
	wantFailures(t, map[string][]guard{"./internal/due": dueGuards, "./internal/proof": slices.Concat(kernelGuards, familyGuards, eraseGuards)},
		func(string) string { return "^TestExplored" })
}

// wantFailures demands of the guards of each package that their tests fail without
// them. With all guards the tests that whole names for a package pass.
func wantFailures(t *testing.T, guards map[string][]guard, whole func(pkg string) string) {
	t.Helper()
	if _, err := exec.LookPath("go"); err != nil {
		t.Skip("the go tool, which builds the code without its guards, is not there")
	}
	pkgs := slices.Sorted(maps.Keys(guards))
	var all []guard
	for _, pkg := range pkgs {
		all = append(all, guards[pkg]...)
	}
	backups := map[string]bool{}
	for i, g := range all {
		if j := slices.IndexFunc(all, func(other guard) bool { return other.name == g.name }); j != i {
			t.Fatalf("two guards are called %s", g.name)
		}
		for _, name := range g.with {
			if !slices.ContainsFunc(all, func(other guard) bool { return other.name == name }) {
				t.Fatalf("guard %s is backed by %s, which is not there", g.name, name)
			}
			backups[name] = true
		}
	}
	if testing.Short() {
		mutated(t, all) // the table fits the code
		return
	}
	m := build(t, all, pkgs...)
	for pkg, list := range guards {
		t.Run("all guards of "+pkg, func(t *testing.T) {
			t.Parallel()
			if out, ok := m.run(t, pkg, whole(pkg)); !ok {
				t.Errorf("with all guards the tests fail, so they tell nothing:\n%s", out)
			}
		})
		for _, g := range list {
			if g.test == "" {
				if !backups[g.name] {
					t.Errorf("guard %s has no exploration, and stands behind no other", g.name)
				}
				continue
			}
			t.Run(g.name, func(t *testing.T) {
				t.Parallel()
				out, ok := m.run(t, pkg, g.test, append([]string{g.name}, g.with...)...)
				switch {
				case ok:
					t.Errorf("nothing fails without it (nor without %q)", g.with)
				case !strings.Contains(out, "--- FAIL: Test") || !strings.Contains(out, g.says) || strings.Contains(out, "\npanic: "):
					t.Errorf("what fails is something else, want a failure that says %q:\n%.4000s", g.says, out)
				}
			})
		}
	}
}

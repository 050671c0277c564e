package perdure_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestWeight holds what an import of the kernel, of SQLite and of the stock binary's
// main package brings along: every foreign module with the number of its packages, and
// how many packages of the standard library.
func TestWeight(t *testing.T) {
	// The same on every machine.
	t.Setenv("GOOS", "linux")
	t.Setenv("GOARCH", "amd64")
	t.Setenv("CGO_ENABLED", "0")
	var got strings.Builder
	got.WriteString("What an import brings besides Perdure's own packages, on linux/amd64: make weight writes it.\n")
	for _, c := range []struct {
		name string
		pkgs []string
	}{
		{"the kernel", []string{"."}},
		{"the kernel and SQLite", []string{".", "./store/sqlitestore"}},
		{"the stock binary", []string{"./cmd/perdure"}},
	} {
		args := append([]string{"list", "-deps", "-f", "{{if .Standard}}std {{.ImportPath}}{{else}}{{.Module.Path}} {{.ImportPath}}{{end}}"}, c.pkgs...)
		count := map[string]int{}
		for line := range strings.Lines(goCmd(t, args...)) {
			mod, pkg, _ := strings.Cut(strings.TrimSpace(line), " ")
			// The inner packages of the standard library change with each release of Go.
			if mod == module || mod == "std" && regexp.MustCompile(`^vendor/|(^|/)internal(/|$)`).MatchString(pkg) {
				continue
			}
			count[mod]++
		}
		standard := count["std"]
		delete(count, "std")
		packages := 0
		for _, n := range count {
			packages += n
		}
		fmt.Fprintf(&got, "\n%s: %d modules with %d packages, and %d packages of the standard library\n", c.name, len(count), packages, standard)
		for _, m := range slices.Sorted(maps.Keys(count)) {
			fmt.Fprintf(&got, "\t%s %d\n", m, count[m])
		}
	}
	const file = "testdata/weight.txt"
	if *update {
		if err := os.WriteFile(file, []byte(got.String()), 0o666); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(strings.Split(string(want), "\n"), strings.Split(got.String(), "\n")); d != "" {
		t.Errorf("the weight differs from %s (- was, + is):\n%s\nif that is meant, run make weight, and say in docs/dependencies.md or an ADR why it is worth it", file, d)
	}
	if !strings.Contains(got.String(), "the kernel: 0 modules") {
		t.Error("the kernel has to do without foreign modules: see docs/adr/0003-one-module.md")
	}
}

// TestDependenciesAreExplained compares docs/dependencies.md with go.mod, and with the
// packages that import each module.
func TestDependenciesAreExplained(t *testing.T) {
	var mod struct {
		Require []struct {
			Path     string
			Indirect bool
		}
	}
	if err := json.Unmarshal([]byte(goCmd(t, "mod", "edit", "-json")), &mod); err != nil {
		t.Fatal(err)
	}
	users := map[string]map[string]bool{} // of a direct requirement: its packages that import it
	for _, r := range mod.Require {
		if !r.Indirect {
			users[r.Path] = map[string]bool{}
		}
	}
	for line := range strings.Lines(goCmd(t, "list", "-f", `{{.ImportPath}} {{join .Imports " "}}`, "./...")) {
		names := strings.Fields(line)
		by := strings.TrimPrefix(strings.TrimPrefix(names[0], module), "/")
		for _, imported := range names[1:] {
			// The longest module path that fits is the module.
			best := ""
			for m := range users {
				if (imported == m || strings.HasPrefix(imported, m+"/")) && len(m) > len(best) {
					best = m
				}
			}
			if best != "" {
				users[best][by] = true
			}
		}
	}
	doc, err := os.ReadFile("docs/dependencies.md")
	if err != nil {
		t.Fatal(err)
	}
	explained := map[string]bool{}
	for _, row := range regexp.MustCompile("(?m)^\\| `([^`]+)` \\| (.*?) \\| (.*) \\|$").FindAllStringSubmatch(string(doc), -1) {
		name, by, why := row[1], row[2], row[3]
		if users[name] == nil {
			t.Errorf("docs/dependencies.md explains %s, which go.mod does not require directly: remove its line", name)
			continue
		}
		if explained[name] {
			t.Errorf("docs/dependencies.md explains %s twice", name)
		}
		explained[name] = true
		want := "tests"
		if len(users[name]) > 0 {
			want = "`" + strings.Join(slices.Sorted(maps.Keys(users[name])), "`, `") + "`"
		}
		if by != want {
			t.Errorf("docs/dependencies.md says that %s is used by %s; it is used by %s", name, by, want)
		}
		if len(strings.Fields(why)) < 6 {
			t.Errorf("docs/dependencies.md does not say why %s, and not another: %q", name, why)
		}
	}
	for name := range users {
		if !explained[name] {
			t.Errorf("docs/dependencies.md has no line for %s: | `%s` | `package`, … | why it, and not another |", name, name)
		}
	}
}

package perdure_test

import (
	"bytes"
	"flag"
	"io/fs"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "accept the public API as it is")

const module = "github.com/perdure/perdure"

func goCmd(t *testing.T, args ...string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "go", args...)
	cmd.Env = append(os.Environ(), "GOPROXY=off") // go doc asks for modules that are not needed
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("go %s: %v\n%s", strings.Join(args, " "), err, &stderr)
	}
	return string(out)
}

// packages returns the module's packages as paths below its root, "." first,
// without folders that have only tests.
func packages(t *testing.T) []string {
	t.Helper()
	var pkgs []string
	for p := range strings.Lines(goCmd(t, "list", "-f", "{{if .GoFiles}}{{.ImportPath}}{{end}}", "./...")) {
		p = strings.TrimPrefix(strings.TrimSpace(p), module)
		pkgs = append(pkgs, "."+p)
	}
	if len(pkgs) < 5 {
		t.Fatalf("go list finds only %q", pkgs)
	}
	return pkgs
}

func TestPackagesAreDocumented(t *testing.T) {
	for line := range strings.Lines(goCmd(t, "list", "-f", "{{if .GoFiles}}{{.ImportPath}}\t{{.Doc}}{{end}}", "./...")) {
		pkg, doc, _ := strings.Cut(strings.TrimSpace(line), "\t")
		if doc == "" {
			t.Errorf("%s has no package comment; say in it what the package is for", pkg)
		}
	}
}

// TestImportsRunOneWay holds the directions of docs/ARCHITECTURE.md.
func TestImportsRunOneWay(t *testing.T) {
	const sqlite = `(golang\.org/x/sys|github\.com/ncruces/(go-sqlite3|go-sqlite3-wasm|julianday))/?.*`
	const postgres = `(github\.com/jackc/(pgx/v5|pgpassfile|pgservicefile|puddle/v2)|golang\.org/x/(crypto|sync|text))(/.*)?`
	const s3 = `(github\.com/(minio/(minio-go/v7|md5-simd|crc64nvme)|klauspost/(compress|cpuid/v2|crc32)|cespare/xxhash/v2|dustin/go-humanize|google/uuid|philhofer/fwd|rs/xid|tinylib/msgp|zeebo/xxh3)|go\.yaml\.in/yaml/v3|gopkg\.in/ini\.v1|golang\.org/x/(crypto|net|sys|text))(/.*)?`
	const redis = `(github\.com/(redis/go-redis/v9|cespare/xxhash/v2)|go\.uber\.org/atomic|golang\.org/x/sys)(/.*)?`
	const natsClient = `(github\.com/nats-io/(nats\.go|nkeys|nuid)|github\.com/klauspost/compress|golang\.org/x/(crypto|sys|text))(/.*)?`
	const prom = `(github\.com/(prometheus/(client_golang|client_model|common|procfs)|beorn7/perks|cespare/xxhash/v2|munnerz/goautoneg)|google\.golang\.org/protobuf|golang\.org/x/sys)(/.*)?`
	const agents = `agent(/(credentials|files|memory|internal/(arguments|filetool)))?`
	const below = `PERDURE/(store|internal/(blob|clock|due|exact|fault|journal|scrub|strict|tree))`
	rules := []struct {
		of  string // packages below the root
		may string // what else than the standard library they may need, their own folder aside; FOREIGN: any other module
	}{
		{`\.`, `PERDURE/(archive|store(/memstore)?|internal/.*)`},
		{`\./store`, ``},
		{`\./store/(mem|file|kv)store`, `PERDURE/store`},
		{`\./store/sqlitestore`, `PERDURE/store|` + sqlite},
		{`\./store/sqlitestore/sqltx`, `PERDURE|PERDURE/(archive|store(/(memstore|sqlitestore))?|internal/.*)|` + sqlite},
		{`\./store/pgstore`, `PERDURE/store|` + postgres},
		{`\./store/redisstore`, `PERDURE/store|` + redis},
		{`\./store/s3store`, `PERDURE/(store(/kvstore)?|internal/s3url)|` + s3},
		{`\./internal/s3url`, s3},
		{`\./store/upstashstore`, `PERDURE/store(/kvstore)?`},
		{`\./archive`, ``},
		{`\./archive/archivetest`, `PERDURE/archive`},
		{`\./archive/s3archive`, `PERDURE/(archive|internal/s3url)|` + s3},
		{`\./internal/s3test`, `PERDURE/internal/freeport|FOREIGN`},
		{`\./internal/resttest`, `PERDURE/internal/(freeport|redistest)|` + redis},
		{`\./store/pgstore/pgtx`, `PERDURE|PERDURE/(archive|store(/(memstore|pgstore))?|internal/.*)|` + postgres},
		{`\./store/natsstore`, `PERDURE/store|` + natsClient},
		{`\./store/(seal|faulty|observed)`, `PERDURE/store`},
		{`\./store/storetest`, `PERDURE/store|github\.com/anishathalye/porcupine(/.*)?`},
		{`\./internal/(blob|due|sweeps)`, `PERDURE/store`},
		{`\./internal/fault`, `PERDURE/(store|internal/(blob|journal|scrub))`},
		{`\./internal/exact`, `PERDURE/(store|internal/(blob|journal|scrub|fault|strict))`},
		{`\./internal/threads`, below},
		{`\./internal/(archive|lifecycle)`, below + `|PERDURE/internal/threads`},
		{`\./internal/vault`, below + `|PERDURE/(archive|internal/(threads|archive|lifecycle))`},
		{`\./internal/erasure`, below + `|PERDURE/(archive|internal/(threads|archive|lifecycle|vault|engine|shelf|bulk|schedule|duty|bell))`},
		{`\./internal/upkeep`, below + `|PERDURE/internal/(threads|archive|lifecycle)`},
		{`\./internal/backup`, below + `|PERDURE/internal/(threads|archive)`},
		{`\./internal/migrate`, below + `|PERDURE/(store/seal|internal/(threads|archive|lifecycle|upkeep))`},
		{`\./internal/engine`, below + `|PERDURE/internal/(threads|archive|lifecycle)`},
		{`\./internal/worker`, below + `|PERDURE/internal/(threads|archive|lifecycle|upkeep|engine|lease|bell)`},
		{`\./internal/explain`, below + `|PERDURE/internal/(threads|archive|lifecycle|upkeep|engine|lease|bell|worker|logbook)`},
		{`\./internal/bulk`, below + `|PERDURE/(archive|internal/(threads|archive|lifecycle|vault|bell|duty))`},
		{`\./internal/schedule`, below + `|PERDURE/internal/(threads|bell|duty)`},
		{`\./cron`, `PERDURE(/(archive|store.*|internal/.*))?|github\.com/adhocore/gronx`},
		{`\./internal/retain`, below + `|PERDURE/(archive|internal/(threads|archive|lifecycle|vault|bell|duty))`},
		{`\./internal/(lease|duty)`, `PERDURE/(store|internal/bell)`},
		{`\./internal/shelf`, below + `|PERDURE/internal/(threads|archive|lifecycle|engine)`},
		{`\./internal/journal`, `PERDURE/(store|internal/blob)`},
		{`\./internal/tree`, `PERDURE/(store|internal/(blob|journal))`},
		{`\./internal/explore`, `PERDURE/store(/memstore)?`},
		{`\./internal/kit`, `PERDURE|PERDURE/(archive|store(/memstore|/faulty)?|internal/.*)`},
		{`\./internal/(cluster|proof)`, ``},
		{`\./perduretest`, `PERDURE|PERDURE/(archive|store(/memstore|/faulty)?|internal/.*)`},
		{`\./internal/powercut`, `PERDURE/store(/storetest)?|github\.com/anishathalye/porcupine(/.*)?`},
		{`\./llm`, `PERDURE/internal/scrub`},
		{`\./llm/internal/(answers|history)`, `PERDURE/(llm|internal/scrub)`},
		{`\./llm/(anthropic|script|llmtest)`, `PERDURE/(llm(/internal/(answers|history))?|internal/scrub)|FOREIGN`},
		{`\./llm/(openai|gemini)`, `PERDURE/(llm(/internal/(answers|history))?|internal/(scrub|sse))|FOREIGN`},
		{`\./agent/(memory|credentials)`, `PERDURE(/(archive|store.*|internal/.*))?`},
		{`\./agent/files`, `PERDURE(/(agent/memory|archive|store.*|internal/.*))?`},
		{`\./agent/internal/arguments`, `PERDURE/internal/strict`},
		{`\./agent/internal/filetool`, `PERDURE(/(agent/(files|memory)|archive|store.*|internal/.*))?`},
		{`\./agent`, `PERDURE(/(` + agents + `|llm|archive|store.*|internal/.*))?|github\.com/google/jsonschema-go/.*`},
		{`\./agent/mcptool`, `PERDURE(/(` + agents + `|llm|archive|store.*|internal/.*))?|FOREIGN`},
		{`\./internal/schema`, `PERDURE/internal/strict|github\.com/google/jsonschema-go/.*`},
		{`\./internal/natstest`, `PERDURE/internal/freeport|FOREIGN`},
		{`\./internal/(pgtest|redistest)`, `PERDURE/internal/freeport`},
		{`\./internal/services`, `PERDURE/internal/(freeport|(pg|redis|nats|s3)test)|FOREIGN`},
		{`\./internal/(bell|clock|freeport|linediff|logbook|release|npm|strict|inproc|peer|scrub|sse)`, ``},
		{`\./api`, `PERDURE(/(` + agents + `|llm|archive|store.*|internal/.*))?|github\.com/google/jsonschema-go/.*`},
		{`\./internal/openapi`, `PERDURE(/(api|` + agents + `|llm|archive|store.*|internal/.*))?|github\.com/google/jsonschema-go/.*`},
		{`\./client`, `PERDURE(/(api|` + agents + `|llm|archive|store.*|internal/.*))?|github\.com/google/jsonschema-go/.*`},
		{`\./server`, `PERDURE(/(api|server/internal/feed|` + agents + `|llm|archive|store.*|internal/.*))?|github\.com/google/jsonschema-go/.*|` + prom},
		{`\./server/internal/feed`, `PERDURE(/(api|` + agents + `|llm|archive|store.*|internal/.*))?|github\.com/google/jsonschema-go/.*`},
		{`\./cli`, `PERDURE(/(api|cron|console|docs|server.*|client|` + agents + `|llm|archive|store.*|internal/.*|cli/internal/.*))?|FOREIGN`},
		{`\./cli/internal/(exit|render)`, `PERDURE(/(api|client|` + agents + `|llm|archive|store.*|internal/.*))?|FOREIGN`},
		{`\./cli/internal/link`, `PERDURE(/(api|server.*|client|` + agents + `|llm|archive|store.*|internal/.*|cli/internal/exit))?|FOREIGN`},
		{`\./(console|docs|docs/guide)`, ``},
		{`\./console`, ``},
		{`\./internal/telemetry`, `PERDURE(/(archive|store.*|internal/.*))?|` + prom},
		{`\./otel`, `PERDURE(/(archive|store.*|internal/.*))?|FOREIGN`},
		{`\./otel/otlp`, `PERDURE(/(otel|archive|store.*|internal/.*))?|FOREIGN`},
		{`\./internal/safe`, `golang\.org/x/text/.*`},
		{`\./internal/terminal(/terminaltest)?`, `PERDURE/internal/safe|golang\.org/x/(text|term|sys)(/.*)?`},
		{`\./cmd/perdure/internal/demo`, `PERDURE(/(agent|archive|llm|store|examples|internal)(/.*)?)?|FOREIGN`},
		{`\./cluster/internal/node`, `PERDURE/store(/natsstore)?|FOREIGN`},
		{`\./cluster`, `PERDURE(/(api|cron|console|docs|server.*|client|` + agents + `|llm|archive|store.*|internal/.*|cli.*|cluster/internal/node))?|FOREIGN`},
		{`\./cmd/(perdure|perdure-cluster|bench)`, `.*`},
		{`\./server/mcpface`, `PERDURE(/(api|client|server|server/internal/(feed|foreign)|` + agents + `|llm|archive|store.*|internal/.*))?|FOREIGN`},
		{`\./server/(adk|agentkit|internal/foreign)`, `PERDURE(/(api|server|server/internal/(feed|foreign)|` + agents + `|llm|archive|store.*|internal/.*))?|github\.com/google/jsonschema-go/.*|` + prom},
		{`\./internal/servertest`, `PERDURE(/(api|server|server/internal/feed|` + agents + `|llm|archive|store.*|internal/.*))?|github\.com/google/jsonschema-go/.*|` + prom},
		{`\./examples/.*`, `.*`},
	}
	compile := func(pattern string) *regexp.Regexp {
		return regexp.MustCompile("^(?:" + strings.ReplaceAll(pattern, "PERDURE", regexp.QuoteMeta(module)) + ")$")
	}
	deps := map[string][]string{} // of each package outside the standard library
	for line := range strings.Lines(goCmd(t, "list", "-deps", "-f", `{{if not .Standard}}{{.ImportPath}} {{join .Deps " "}}{{end}}`, "./...")) {
		all := strings.Fields(line)
		deps[all[0]] = all[1:]
	}
	for _, pkg := range packages(t) {
		i := slices.IndexFunc(rules, func(r struct{ of, may string }) bool { return compile(r.of).MatchString(pkg) })
		if i < 0 {
			t.Errorf("%s has no rule here that says what it may import", pkg)
			continue
		}
		own := strings.TrimSuffix(module+"/"+strings.TrimPrefix(pkg[1:], "/"), "/")
		if deps[own] == nil {
			t.Errorf("go list does not say what %s needs", pkg)
		}
		may := compile(rules[i].may)
		for _, dep := range deps[own] {
			if deps[dep] == nil { // of the standard library
				continue
			}
			if strings.HasSuffix(rules[i].may, "FOREIGN") && !strings.HasPrefix(dep, module) {
				continue
			}
			if !may.MatchString(dep) {
				t.Errorf("%s needs %s, which its rule does not allow", pkg, dep)
			}
			if dep == module+"/internal/kit" {
				t.Errorf("%s needs %s, which is for tests only", pkg, dep)
			}
		}
	}
}

func TestFilesAreShort(t *testing.T) {
	seen := 0
	err := filepath.WalkDir(".", func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() && strings.HasPrefix(d.Name(), ".") && name != "." {
			return fs.SkipDir
		}
		if filepath.Ext(name) != ".go" {
			return nil
		}
		seen++
		data, err := os.ReadFile(name)
		limit := 500
		if strings.HasSuffix(name, "_test.go") {
			limit = 800
		}
		if n := bytes.Count(data, []byte("\n")); n > limit {
			t.Errorf("%s has %d lines; cut it, the limit is %d", name, n, limit)
		}
		return err
	})
	if err != nil || seen == 0 {
		t.Fatalf("walked %d files: %v", seen, err)
	}
}

// TestPublicAPI compares the declarations of each public package with the
// accepted ones, so that no change of them goes unnoticed.
func TestPublicAPI(t *testing.T) {
	golden := map[string]bool{}
	var rooms []string
	for _, pkg := range packages(t) {
		if strings.Contains(pkg, "/internal/") && pkg != "./internal/archive" { // there is a public package of that name
			rooms = append(rooms, path.Base(pkg))
		}
	}
	inside := regexp.MustCompile(`\b(` + strings.Join(rooms, "|") + `)\.[A-Z]\w*`)
	same := regexp.MustCompile(`(?m)^(type |const |\t)([A-Z]\w*) += (\w+)\.([A-Z]\w*)( *//.*)?$`) // the public face of an inner name
	for _, pkg := range packages(t) {
		if strings.Contains(pkg, "/internal/") || strings.HasPrefix(pkg, "./examples/") || strings.HasPrefix(pkg, "./cmd/") {
			continue
		}
		var got strings.Builder
		declarations := false
		for line := range strings.Lines(goCmd(t, "doc", "-all", pkg)) {
			// The package comment comes first; then prose is indented by
			// spaces and declarations are not.
			declarations = declarations || slices.Contains([]string{"CONSTANTS\n", "VARIABLES\n", "FUNCTIONS\n", "TYPES\n"}, line)
			comment := strings.HasPrefix(strings.TrimSpace(line), "//")
			if declarations && line != "\n" && !comment && !strings.HasPrefix(line, "    ") {
				got.WriteString(line)
			}
		}
		name := "perdure"
		if pkg != "." {
			name = strings.ReplaceAll(strings.TrimPrefix(pkg, "./"), "/", "-")
		}
		face := same.ReplaceAllStringFunc(got.String(), func(line string) string {
			m := same.FindStringSubmatch(line)
			if m[2] != m[4] {
				return line
			}
			if m[1] == "type " { // its fields and methods are public
				got.WriteString(goCmd(t, "doc", "-short", "./internal/"+m[3]+"."+m[4]))
			}
			return ""
		})
		if found := inside.FindAllString(face, -1); found != nil {
			t.Errorf("public names of %s point into internal packages: %s", pkg, found)
		}
		file := path.Join("testdata", "api", name+".txt")
		golden[file] = true
		if *update {
			if err := os.MkdirAll(path.Dir(file), 0o777); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(file, []byte(got.String()), 0o666); err != nil {
				t.Fatal(err)
			}
			continue
		}
		want, err := os.ReadFile(file)
		if err != nil || got.String() != string(want) {
			t.Errorf("the API of %s differs from %s (%v); if that is meant, run make api and say so in the CHANGELOG", pkg, file, err)
		}
	}
	files, _ := filepath.Glob("testdata/api/*.txt")
	for _, file := range files {
		if !golden[filepath.ToSlash(file)] {
			t.Errorf("%s belongs to no package", file)
		}
	}
}

// TestGuaranteesNameTests fails if docs/guarantees.md names a test that is
// not there.
func TestGuaranteesNameTests(t *testing.T) {
	doc, err := os.ReadFile("docs/guarantees.md")
	if err != nil {
		t.Fatal(err)
	}
	tests := map[string]bool{}
	err = filepath.WalkDir(".", func(name string, d fs.DirEntry, err error) error {
		if err != nil || !strings.HasSuffix(name, "_test.go") {
			return err
		}
		data, err := os.ReadFile(name)
		for _, m := range regexp.MustCompile(`(?m)^func (Test\w+)\(`).FindAllSubmatch(data, -1) {
			folder := filepath.Base(filepath.Dir(name))
			tests[folder+"."+string(m[1])], tests[string(m[1])] = true, true
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	named := regexp.MustCompile("`((?:\\w+\\.)?Test\\w+)`").FindAllSubmatch(doc, -1)
	if len(named) < 10 {
		t.Fatalf("docs/guarantees.md names only %d tests", len(named))
	}
	for _, m := range named {
		if !tests[string(m[1])] {
			t.Errorf("docs/guarantees.md names %s, which does not exist", m[1])
		}
	}
}

// TestWorkflowRunsTheTargetsOfCI fails if the workflow and make ci differ.
func TestWorkflowRunsTheTargetsOfCI(t *testing.T) {
	read := func(file, pattern string) [][][]byte {
		data, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		m := regexp.MustCompile(pattern).FindAllSubmatch(data, -1)
		if m == nil {
			t.Fatalf("%s has no targets (%s)", file, pattern)
		}
		return m
	}
	var local []string
	for _, m := range read("Makefile", `(?m)^(?:ci:|\t@\$\(MAKE\) --no-print-directory(?: -j [23] --output-sync=target)?)((?: [a-z-]+)+)(?: #.*)?$`) {
		local = append(local, strings.Fields(string(m[1]))...)
	}
	local = slices.DeleteFunc(local, func(target string) bool {
		return strings.HasPrefix(target, "long-") || strings.HasPrefix(target, "test-")
	})
	workflow := strings.Split(string(read(".github/workflows/ci.yml", `(?m)^ +target: \[(.*)\]$`)[0][1]), ", ")
	if !slices.Equal(local, workflow) {
		t.Errorf("make ci runs %q, the workflow %q", local, workflow)
	}
}

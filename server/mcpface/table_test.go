package mcpface

import (
	"cmp"
	"flag"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/perdure/perdure/api"
)

// withheld are the operations that are no tools, and why.
var withheld = map[string]string{
	"asks.answer-all": "asks.answer is enough", "asks.progress": "for the systems that asks are forwarded to", "asks.secret": "no model should hold a secret",
	"rules.list": "about approvals that are given in advance", "rules.revoke": "about approvals that are given in advance",
	"bulk.plan": "many threads at once", "bulk.start": "many threads at once", "bulk.list": "many threads at once", "bulk.get": "many threads at once", "bulk.stop": "many threads at once", "bulk.resume": "many threads at once",
	"schedules.put": "what starts later is for people to decide", "schedules.pause": "as schedules.put", "schedules.resume": "as schedules.put", "schedules.delete": "as schedules.put", "schedules.trigger": "a start does it",
	"schedules.list": "for operators", "schedules.get": "for operators", "schedules.next": "for operators",
	"events.watch": "a stream", "session.create": "for browsers", "session.delete": "for browsers", "tickets.create": "for browsers",
	"memory.list": "of the flows", "memory.get": "of the flows", "memory.put": "of the flows", "memory.delete": "of the flows",
	"threads.create": "a start creates a thread", "threads.update": "titles are for people", "threads.see": "a person has to have seen it",
	"uploads.create": "bytes", "uploads.delete": "bytes", "blobs.get": "bytes", "threads.export": "bytes", "threads.import": "bytes", "runs.bundle": "bytes",
	"archived.list": "for operators", "retention.get": "for operators", "retention.due": "for operators", "metrics.get": "for monitoring", "health.get": "for monitoring", "ready.get": "for monitoring", "openapi.get": "the tools have schemas", "usage.get": "for operators",
}

// A new operation is a tool, or is listed here with a reason; those for admins are not.
func TestEveryOperationIsDecidedOn(t *testing.T) {
	for _, op := range api.All() {
		offered := slices.ContainsFunc(lines, func(l line) bool { return l.op.Name == op.Name })
		_, reason := withheld[op.Name]
		switch {
		case op.Scope == api.ScopeAdmin && offered:
			t.Errorf("%s is for admins, and no tool for a model", op.Name)
		case op.Scope != api.ScopeAdmin && offered == reason:
			t.Errorf("%s: add a line to the table of tools, or say in this test why it is none", op.Name)
		}
	}
	for name := range withheld {
		if api.Find(name) == nil {
			t.Errorf("there is no operation %s", name)
		}
	}
}

// Clients and models accept names of these characters only. What a tool needs and
// whether it changes something follows from its operation.
func TestToolsAreWellFormed(t *testing.T) {
	valid := regexp.MustCompile(`^[a-z][a-z0-9_]{0,63}$`)
	seen := map[string]bool{}
	for i, tool := range fixed() {
		if !valid.MatchString(tool.Name) || seen[tool.Name] || strings.HasPrefix(tool.Name, flowPrefix) {
			t.Errorf("the name %s is not valid, or is there twice", tool.Name)
		}
		seen[tool.Name] = true
		if tool.Annotations.ReadOnlyHint != (tool.scope == api.ScopeRead || tool.scope == api.ScopeAny) {
			t.Errorf("%s needs the scope %s, and its annotations are %+v", tool.Name, tool.scope, tool.Annotations)
		}
		if i < len(lines) && lines[i].rest != "" && api.Find(strings.Replace(lines[i].rest, "_", ".", 1)) == nil {
			t.Errorf("%s: there is no %s", tool.Name, lines[i].rest)
		}
	}
	for _, l := range lines {
		names := map[string]bool{}
		for _, f := range l.op.Fields() {
			name := argument(f)
			if name != "" && names[name] || name == "cursor" {
				t.Errorf("%s has two arguments %s", l.op.Name, name)
			}
			names[name] = true
		}
		for name := range l.defaults {
			if !names[name] {
				t.Errorf("%s has no argument %s", l.op.Name, name)
			}
		}
	}
}

func TestNamesOfFlowTools(t *testing.T) {
	long := strings.Repeat("x", 200)
	valid := regexp.MustCompile(`^[a-zA-Z0-9_-]{1,64}$`)
	flows := []string{"start", "runs_get", "a.b", "a_b", "a/b", "a b", "é", "è", "A_b", long, long + "y", "_", "", "flow_start", strings.Repeat("z", 59), strings.Repeat("z", 60)}
	for _, flow := range flows { // names that look like those that are made
		flows = append(flows, strings.TrimPrefix(flowToolName(flow), flowPrefix))
	}
	names := map[string]string{}
	for _, flow := range flows {
		name := flowToolName(flow)
		if other, taken := names[name]; taken && other != flow || !valid.MatchString(name) {
			t.Errorf("%q is called %s, as is %q", flow, name, other)
		}
		names[name] = flow
		if slices.ContainsFunc(fixed(), func(t *tool) bool { return t.Name == name }) {
			t.Errorf("%q is called as a tool of its own", flow)
		}
	}
	if flowToolName("start") != "flow_start" || flowToolName("a.b") != "flow_a_b-2e7336dc" {
		t.Errorf("names have changed: %s, %s", flowToolName("start"), flowToolName("a.b"))
	}
}

var update = flag.Bool("update", false, "write the table of docs/mcp.md")

// TestDocsHaveAllTools keeps the table of docs/mcp.md: go test ./server/mcpface -update
// writes it.
func TestDocsHaveAllTools(t *testing.T) {
	const file = "../../docs/mcp.md"
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var table strings.Builder
	table.WriteString("| tool | scope | what it does |\n|---|---|---|\n")
	for _, l := range lines {
		fmt.Fprintf(&table, "| `%s` | %s | %s |\n", toolName(l.op), l.op.Scope, cmp.Or(l.title, l.op.Title))
	}
	head, rest, ok := strings.Cut(string(data), "<!-- tools -->\n")
	_, tail, end := strings.Cut(rest, "<!-- end -->")
	if !ok || !end {
		t.Fatalf("%s has no place for the table", file)
	}
	want := head + "<!-- tools -->\n" + table.String() + "<!-- end -->" + tail
	if *update {
		if err := os.WriteFile(file, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
	} else if want != string(data) {
		t.Errorf("%s is not what the table has; go test ./server/mcpface -run TestDocs -update writes it", file)
	}
}

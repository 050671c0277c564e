package api

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/jsonschema-go/jsonschema"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/agent"
	"github.com/perdure/perdure/store"
)

var updateDocs = flag.Bool("update", false, "write the pages under docs that follow from the declarations")

func TestEveryKindOfEventIsDescribed(t *testing.T) {
	source, err := os.ReadFile("../internal/journal/entry.go")
	if err != nil {
		t.Fatal(err)
	}
	var written, described []string
	for _, m := range regexp.MustCompile(`Kind = "([a-z]+)"`).FindAllSubmatch(source, -1) {
		if kind := string(m[1]); kind != "erased" { // ends a stream and is no event
			written = append(written, kind)
		}
	}
	for _, k := range EventKinds {
		described = append(described, k.Name)
		if k.Title == "" {
			t.Errorf("%s has no title", k.Name)
		}
	}
	slices.Sort(written)
	slices.Sort(described)
	if diff := cmp.Diff(written, described); diff != "" || len(written) < 30 {
		t.Errorf("the kinds that are written and those that are described: %s", diff)
	}
}

// A store that another program locks is no fault of the server.
func TestABusyStoreIsUnavailable(t *testing.T) {
	p := ProblemOf(fmt.Errorf("erasing: %w: /path/app.db", store.ErrBusy))
	if p.Status != 503 || !strings.HasSuffix(p.Type, "unavailable") || !strings.Contains(p.Detail, "transaction") || strings.Contains(p.Detail, "/path") {
		t.Errorf("the problem is %+v", p)
	}
}

func TestEveryMemberOfAnEventIsDescribed(t *testing.T) {
	used := map[string]bool{}
	for _, k := range EventKinds {
		for _, name := range slices.Concat(CommonFields, k.Fields) {
			used[name] = true
			if memberSchemas[name] == nil && name != "kind" {
				t.Errorf("the member %s of %s has no schema", name, k.Name)
			}
		}
	}
	event := reflect.TypeFor[perdure.Event]()
	for i := range event.NumField() {
		name, _, _ := strings.Cut(event.Field(i).Tag.Get("json"), ",")
		if !used[name] {
			t.Errorf("no kind has the member %s", name)
		}
		delete(used, name)
	}
	for name := range used {
		t.Errorf("no event has the member %s", name)
	}
}

func TestEventSchemasAreSchemas(t *testing.T) {
	data, err := EventSchemas()
	if err != nil {
		t.Fatal(err)
	}
	var all struct {
		Defs map[string]*jsonschema.Schema `json:"$defs"`
	}
	if err := json.Unmarshal(data, &all); err != nil {
		t.Fatal(err)
	}
	for _, k := range EventKinds {
		s, err := all.Defs[k.Name].Resolve(nil)
		if err != nil {
			t.Fatalf("%s: %v", k.Name, err)
		}
		event := map[string]any{"thread": "a", "seq": 1.0, "kind": k.Name, "time": "2026-01-02T15:04:05Z"}
		if err := s.Validate(event); err != nil {
			t.Errorf("%s: %v", k.Name, err)
		}
		event["kind"] = "none"
		if s.Validate(event) == nil {
			t.Errorf("%s allows another kind", k.Name)
		}
	}
}

// The schema of a piece has what a piece has.
func TestPieceSchemaIsComplete(t *testing.T) {
	var piece struct{ Properties map[string]any }
	if err := json.Unmarshal(deltaSchemas["piece"], &piece); err != nil {
		t.Fatal(err)
	}
	for _, f := range reflect.VisibleFields(reflect.TypeFor[agent.Delta]()) {
		if f.Anonymous {
			continue
		}
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		if piece.Properties[name] == nil {
			t.Errorf("the schema of a piece has no %q", name)
		}
		delete(piece.Properties, name)
	}
	if len(piece.Properties) > 0 {
		t.Errorf("a piece has no %v", piece.Properties)
	}
}

// TestEventDocs compares docs/events.md and docs/events.schema.json with what
// they are made of: go test ./api -run TestEventDocs -update
func TestEventDocs(t *testing.T) {
	schemas, err := EventSchemas()
	if err != nil {
		t.Fatal(err)
	}
	var table bytes.Buffer
	table.WriteString("| kind | what happened | members |\n|---|---|---|\n")
	for _, k := range EventKinds {
		title := k.Title
		if k.Internal {
			title += " (*internal*)"
		}
		fmt.Fprintf(&table, "| `%s` | %s | %s |\n", k.Name, title, strings.Join(k.Fields, ", "))
	}
	script, err := os.ReadFile("../server/testdata/follow.js")
	if err != nil {
		t.Fatal(err)
	}
	docs, err := os.ReadFile("../docs/events.md")
	if err != nil {
		t.Fatal(err)
	}
	want := between(docs, "| kind |", "", table.Bytes())
	want = between(want, "```js\n", "```", append([]byte("```js\n"), script...))
	for name, data := range map[string][]byte{"../docs/events.md": want, "../docs/events.schema.json": append(schemas, '\n')} {
		if *updateDocs {
			if err := os.WriteFile(name, data, 0o644); err != nil {
				t.Fatal(err)
			}
		}
		if got, err := os.ReadFile(name); err != nil || !bytes.Equal(got, data) {
			t.Errorf("%s is not up to date: go test ./api -run TestEventDocs -update (%v)", name, err)
		}
	}
}

// between returns a text with what stands from begin up to end, or to its own
// end, replaced.
func between(text []byte, begin, end string, by []byte) []byte {
	from := bytes.Index(text, []byte(begin))
	if from < 0 {
		return append(slices.Clone(text), by...)
	}
	to := len(text)
	if end != "" {
		to = from + len(begin) + bytes.Index(text[from+len(begin):], []byte(end))
	}
	return slices.Concat(text[:from], by, text[to:])
}

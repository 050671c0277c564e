package mcptool

import (
	_ "embed"
	"encoding/json"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/perdure/perdure/internal/npm"
)

//go:embed testdata/everything/package.json
var manifest []byte

//go:embed testdata/everything/package-lock.json
var lock []byte

// TestRealServer uses @modelcontextprotocol/server-everything, which shows all
// that the protocol has.
func TestRealServer(t *testing.T) {
	script, err := npm.Install("mcp-everything", manifest, lock, "@modelcontextprotocol", "server-everything", "dist", "index.js")
	if err != nil {
		if os.Getenv("CI") == "true" {
			t.Fatalf("the test against a real server cannot run: %v", err)
		}
		t.Skipf("skipped, because the test against a real server cannot run: %v", err)
	}
	s := Command("everything", "node", script, "stdio")
	defer s.Close()
	infos, err := s.List(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	find := func(name string) string {
		i := slices.IndexFunc(infos, func(i Info) bool { return strings.EqualFold(strings.ReplaceAll(i.Name, "-", ""), name) })
		if i < 0 {
			t.Fatalf("it has no %s, but %+v", name, infos)
		}
		return infos[i].Name
	}
	if out := call(t, s, find("echo"), `{"message":"hello"}`); !strings.Contains(out.Text, "hello") || out.Error {
		t.Errorf("echo: %+v", out)
	}
	if out := call(t, s, find("getsum"), `{"a":2,"b":40}`); !strings.Contains(out.Text, "42") {
		t.Errorf("the sum: %+v", out)
	}
	if out := call(t, s, find("gettinyimage"), ``); len(out.Media) != 1 || out.Media[0].MIME != "image/png" || len(out.Media[0].Data) == 0 {
		t.Errorf("the image: %d media, %s", len(out.Media), out.Text)
	}
	out := call(t, s, find("getstructuredcontent"), `{"location":"New York"}`)
	if !json.Valid([]byte(out.Text)) || !strings.Contains(out.Text, "temperature") {
		t.Errorf("structured content: %s", out.Text)
	}
	if out := call(t, s, find("getresourcelinks"), `{"count":2}`); !strings.Contains(out.Text, "://") {
		t.Errorf("links: %+v", out)
	}
	t.Setenv("OPENAI_API_KEY", "sk-of-the-parent")
	if out := call(t, s, find("getenv"), ``); strings.Contains(out.Text, "sk-of-the-parent") {
		t.Errorf("its environment: %s", out.Text)
	}
	if out, err := s.Call(t.Context(), find("getsum"), json.RawMessage(`{"a":"x"}`)); err == nil && !out.Error {
		t.Errorf("wrong arguments are taken: %+v", out)
	}
	if out := call(t, s, find("triggerlongrunningoperation"), `{"duration":0.2,"steps":2}`); out.Error {
		t.Errorf("the long operation: %+v", out)
	}
}

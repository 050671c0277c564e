package mcptool

import (
	"context"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

//go:embed testdata/everything/package.json testdata/everything/package-lock.json
var everything embed.FS

const installTime = 3 * time.Minute

// install returns the file that node runs. Test processes that install at the
// same time each fill a folder of their own, and the first one to be ready
// gives it the name that all look for.
func install() (string, error) {
	for _, tool := range []string{"node", "npm"} {
		if _, err := exec.LookPath(tool); err != nil {
			return "", fmt.Errorf("%s is not installed; it comes with Node.js 20 or later", tool)
		}
	}
	cache, err := os.UserCacheDir()
	if err != nil {
		cache = os.TempDir()
	}
	files := map[string][]byte{}
	for _, name := range []string{"package.json", "package-lock.json"} {
		if files[name], err = everything.ReadFile("testdata/everything/" + name); err != nil {
			return "", err
		}
	}
	sum := sha256.Sum256(files["package-lock.json"])
	folder := filepath.Join(cache, "perdure", "mcp-everything-"+hex.EncodeToString(sum[:8]))
	server := filepath.Join(folder, "node_modules", "@modelcontextprotocol", "server-everything", "dist", "index.js")
	if _, err := os.Stat(server); err == nil {
		return server, nil
	}
	if err := os.MkdirAll(filepath.Dir(folder), 0o700); err != nil {
		return "", err
	}
	tmp, err := os.MkdirTemp(filepath.Dir(folder), "install-")
	if err != nil {
		return "", err
	}
	defer os.RemoveAll(tmp)
	for name, data := range files {
		if err := os.WriteFile(filepath.Join(tmp, name), data, 0o600); err != nil {
			return "", err
		}
	}
	ctx, cancel := context.WithTimeout(context.Background(), installTime)
	defer cancel()
	npm := exec.CommandContext(ctx, "npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund")
	npm.Dir = tmp
	npm.WaitDelay = 10 * time.Second
	if out, err := npm.CombinedOutput(); err != nil {
		return "", fmt.Errorf("npm ci: %w\n%s", err, out)
	}
	if err := os.Rename(tmp, folder); err != nil {
		if _, statErr := os.Stat(server); statErr != nil {
			return "", errors.Join(err, statErr)
		}
	}
	return server, nil
}

// TestRealServer uses @modelcontextprotocol/server-everything, which shows all
// that the protocol has.
func TestRealServer(t *testing.T) {
	script, err := install()
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

package cli

import (
	"bytes"
	"encoding/base64"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/agent/credentials"
	"github.com/perdure/perdure/cli/internal/exit"
	"github.com/perdure/perdure/server"
	"github.com/perdure/perdure/store"
	"github.com/perdure/perdure/store/filestore"
	"github.com/perdure/perdure/store/seal"
)

// commandsIn returns the commands of the shell block after a heading of a page.
func commandsIn(t *testing.T, page, heading string) (lines []string) {
	t.Helper()
	data, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	_, rest, found := strings.Cut(string(data), "\n"+heading+"\n")
	_, rest, begun := strings.Cut(rest, "```sh\n")
	block, _, ended := strings.Cut(rest, "```")
	if !found || !begun || !ended {
		t.Fatalf("%s has no commands under %q", page, heading)
	}
	return strings.Split(strings.TrimSpace(block), "\n")
}

// TestOperations runs the commands of docs/operations.md.
func TestOperations(t *testing.T) {
	lines := commandsIn(t, "../docs/operations.md", "### SQLite and file stores")
	t.Chdir(t.TempDir())
	p := &place{t: t, flows: testFlows()}
	p.run("", "run", "echo", "tea", "--thread", "t", "--store", "sqlite:perdure.db").want(exit.OK)
	ran := 0
	for _, line := range lines {
		words := strings.Fields(line)
		switch {
		case words[0] == "mkdir":
			if err := os.MkdirAll(words[2], 0o700); err != nil {
				t.Fatal(err)
			}
		case words[1] == "run": // its thread is made above
		case words[1] != "serve":
			p.run("", words[1:]...).want(exit.OK)
			ran++
		}
	}
	if ran != 3 {
		t.Errorf("%d commands ran", ran)
	}
	p.run("", "show", "t", "--store", "sqlite:restored.db").want(exit.OK, "succeeded")
	p.run("", "backup", ".", "--verify").want(exit.Failed, "has no BACKUP.json, so it is no backup")
}

// TestBackupCommands backs up a file store through its server, and is refused where it
// has to be.
func TestBackupCommands(t *testing.T) {
	t.Chdir(t.TempDir())
	s, err := filestore.Open(t.Context(), "data", filestore.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	p := &place{t: t, flows: testFlows()}
	rt, err := perdure.New(t.Context(), s, perdure.Options{}, p.flows...)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := rt.Create(t.Context(), perdure.CreateRequest{Thread: "t"}); err != nil {
		t.Fatal(err)
	}
	ts := httptest.NewServer(server.New(rt, server.Options{}))
	defer ts.Close()
	p.run("", "backup", "b", "--server", ts.URL).want(exit.OK, "1 thread")
	p.run("", "backup", "b", "--server", ts.URL).want(exit.BadUsage, "exists")
	p.run("", "backup", "c", "--store", "sqlite:none.db").want(exit.Unavailable, "there is no store")
	p.run("", "restore", "b", "--store", "file:new").want(exit.OK, "is restored to file:new")
	p.run("", "restore", "b", "--store", "file:new").want(exit.BadUsage, "exists")
	p.run("", "restore", "b", "--store", "sqlite:new.db").want(exit.BadUsage, "file:PATH")
	p.run("", "restore", "b").want(exit.BadUsage, "--store")
	p.run("", "restore", "--store", "file:new").want(exit.BadUsage, "--mark")
	p.run("", "restore", "--mark", "--store", "file:new").want(exit.OK, "marked as restored")
	p.run("", "show", "t", "--store", "file:new").want(exit.OK)
	if files, err := filepath.Glob(".*partial*"); err != nil || len(files) > 0 {
		t.Errorf("left behind: %q, %v", files, err)
	}
}

// TestBackupOfSealedStore backs up a sealed store without its keys, and restores it
// with them.
func TestBackupOfSealedStore(t *testing.T) {
	t.Chdir(t.TempDir())
	text := "a:" + base64.StdEncoding.EncodeToString(bytes.Repeat([]byte("a"), 32))
	ring, err := seal.ParseRing(text)
	if err != nil {
		t.Fatal(err)
	}
	open := func(url string) *perdure.Runtime {
		t.Helper()
		inner, err := store.Open(t.Context(), url)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { inner.Close() })
		s, err := seal.New(t.Context(), inner, ring)
		if err != nil {
			t.Fatal(err)
		}
		rt, err := perdure.New(t.Context(), s, perdure.Options{})
		if err != nil {
			t.Fatal(err)
		}
		return rt
	}
	if _, err := open("sqlite:s.db").Create(t.Context(), perdure.CreateRequest{Thread: "t"}); err != nil {
		t.Fatal(err)
	}
	p := &place{t: t}
	p.run("", "backup", "b", "--store", "sqlite:s.db").want(exit.OK, "sealed, 1 journal")
	p.run("", "restore", "b", "--store", "sqlite:r.db").want(exit.Failed, "its keys are needed")
	p.setUp = func(a *app) { a.term.Env = envOf("PERDURE_TO_KEYS", text) }
	p.run("", "restore", "b", "--store", "sqlite:r.db").want(exit.OK)
	if th, err := open("sqlite:r.db").Get(t.Context(), "t"); err != nil || th.Life == "" {
		t.Errorf("the restored thread is %+v, %v", th, err)
	}
}

func envOf(name, value string) func(string) string {
	return func(asked string) string {
		if asked == name {
			return value
		}
		return ""
	}
}

// TestKeysCommands rotates the keys of credentials.
func TestKeysCommands(t *testing.T) {
	ring := func(ids ...string) string {
		for i, id := range ids {
			ids[i] = id + ":" + base64.StdEncoding.EncodeToString(bytes.Repeat([]byte(id), 32))
		}
		return strings.Join(ids, ",")
	}
	t.Setenv("PERDURE_KEYS", "")
	p := served(t)
	p.run("", "keys").want(exit.OK, "nothing is sealed")
	t.Setenv("PERDURE_KEYS", ring("a"))
	for _, tenant := range []string{"", "acme"} {
		if err := credentials.Of(p.rt.Tenant(tenant)).Give(t.Context(), "ann", "door", "sesame", "ann"); err != nil {
			t.Fatal(err)
		}
	}
	t.Setenv("PERDURE_KEYS", ring("b"))
	p.run("", "keys").want(exit.OK, "missing: put it back")
	p.run("", "keys", "rotate").want(exit.Failed, "2 credentials were not rotated", "keep the old keys")
	t.Setenv("PERDURE_KEYS", ring("b", "a"))
	p.run("", "keys").want(exit.OK, "needed: perdure keys rotate")
	p.run("", "keys", "rotate").want(exit.OK, "Sealed 2 with the current keys")
	p.run("", "keys", "rotate", "--json").want(exit.OK, `"rotated": 0`)
	if r := p.run("", "keys").want(exit.OK, "current"); strings.Contains(r.out, "needed") {
		t.Errorf("after the rotation:\n%s", r.out)
	}
	t.Setenv("PERDURE_KEYS", strings.Replace(ring("a"), "a:", "b:", 1))
	p.run("", "keys").want(exit.OK, "other bytes than those that sealed 2: put these back")
}

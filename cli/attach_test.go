package cli

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/cli/internal/exit"
)

// TestFilesAreAttached: run and chat upload files and add them to the input; an
// upload can be attached to a signal.
func TestFilesAreAttached(t *testing.T) {
	dir := t.TempDir()
	png, plain := filepath.Join(dir, "a.png"), filepath.Join(dir, "notes")
	for path, text := range map[string]string{png: "pixels", plain: "some text"} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	both(t, func(t *testing.T, p *place) {
		var parts []struct {
			Text  string
			Media struct{ Name, MIME, Blob string }
		}
		r := p.run("", "run", "echo", "what is it?", "--attach", png, "--attach", plain, "--thread", "t").want(exit.OK)
		if err := json.Unmarshal([]byte(r.out), &parts); err != nil || len(parts) != 3 || parts[0].Text != "what is it?" ||
			parts[1].Media.Name != "a.png" || parts[1].Media.MIME != "image/png" || parts[2].Media.MIME != "text/plain" || len(parts[1].Media.Blob) != 64 {
			t.Errorf("%v in %s", err, r.out)
		}
		p.run("", "run", "echo", `[{"text": "list"}]`, "--attach", png).want(exit.OK, "a.png", `"list"`)
		p.run("", "run", "echo", `{"a": 1}`, "--attach", png).want(exit.BadUsage, "perdure upload")
		p.run("", "run", "echo", "--attach", dir).want(exit.BadUsage, "is not a file")
		p.run("", "run", "echo", "--attach", png+"x").want(exit.NotFound, "no such file")
		p.run("", "upload", png+"x").want(exit.NotFound, "no such file")
		p.run("look\n", "chat", "echo", "--attach", png).want(exit.OK, "a.png")

		var u perdure.Upload
		if err := json.Unmarshal([]byte(p.run("", "upload", plain, "--type", "application/x-notes", "--json").want(exit.OK).out), &u); err != nil || u.MIME != "application/x-notes" || u.Size != 9 {
			t.Errorf("%v %+v", err, u)
		}
		p.run("", "upload", plain).want(exit.OK, "expires")
		p.run("", "run", "wait", "--thread", "w").want(exit.Waiting)
		p.run("", "signal", "w", "payment", fmt.Sprintf("%q", u.Blob), "--attach", "nothing").want(exit.NotFound, "unknown upload")
		p.run("", "signal", "w", "payment", fmt.Sprintf("%q", u.Blob), "--attach", u.ID).want(exit.OK)
	})
}

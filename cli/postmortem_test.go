package cli

import (
	"archive/zip"
	"encoding/base64"
	"io"
	"strings"
	"testing"

	"github.com/perdure/perdure/cli/internal/exit"
)

// TestPostMortemAndBundle tells about a run that failed, and gives it away without
// its contents.
func TestPostMortemAndBundle(t *testing.T) {
	t.Setenv("PERDURE_KEYS", "k1:"+base64.StdEncoding.EncodeToString(make([]byte, 32)))
	both(t, func(t *testing.T, p *place) {
		t.Chdir(t.TempDir())
		p.run("", "run", "fail", "canary-1", "--thread", "canary-2", "--user", "canary-3", "--title", "canary-4", "--metadata", "canary-5=canary-6").want(exit.Failed)
		p.run("", "postmortem", "canary-2").want(exit.OK, "failed", "the supplier is", "may have happened outside", "perdure retry canary-2", "perdure fork canary-2 --at")
		p.run("", "show", "canary-2").want(exit.OK, "perdure postmortem canary-2")
		p.run("", "postmortem", "canary-2", "nope").want(exit.NotFound)
		name := strings.TrimSpace(p.run("", "bundle", "canary-2").want(exit.OK).out)
		look := func(name string) (text string) {
			z, err := zip.OpenReader(name)
			if err != nil {
				t.Fatal(err)
			}
			defer z.Close()
			for _, f := range z.File {
				rd, err := f.Open()
				if err != nil {
					t.Fatal(err)
				}
				data, err := io.ReadAll(rd)
				if err != nil {
					t.Fatal(err)
				}
				text += f.Name + "\n" + string(data)
			}
			return text
		}
		if text := look(name); strings.Contains(text, "canary") || strings.Contains(text, "supplier") || !strings.Contains(text, `"server":`) {
			t.Errorf("the bundle has\n%s", text)
		}
		p.run("", "bundle", "canary-2").want(exit.BadUsage, "exists")
		p.run("", "bundle", "canary-2", "--with", "contents", "-o", "all.zip").want(exit.OK)
		if text := look("all.zip"); !strings.Contains(text, "canary-1") {
			t.Error("the contents are missing")
		}
		// What agents, tools and people said, and a credential.
		ask := p.asked("v", "vault", "open")
		p.run("s3cret\n", "answer", ask, "--secret").want(exit.OK)
		p.ended("v")
		p.run("", "run", "clerk", "pay 1 canary-7", "--thread", "c").want(exit.Waiting)
		for thread, file := range map[string]string{"v": "v.zip", "c": "c.zip"} {
			p.run("", "bundle", thread, "-o", file).want(exit.OK)
			for _, word := range []string{"canary", "s3cret", "guard", "The code", "You pay", "approve", "clerk", "opened"} {
				if text := look(file); strings.Contains(text, word) {
					t.Errorf("the bundle of %s has %q", thread, word)
				}
			}
		}
		p.run("", "bundle", "canary-2", "--with", "secrets").want(exit.BadUsage, "names, hosts or contents")
	})
}

package cli

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/perdure/perdure/cli/internal/exit"
)

// TestAProgramHasItsOwnName in help, hints, errors and what shells complete.
func TestAProgramHasItsOwnName(t *testing.T) {
	p := stored(t)
	p.setUp = func(a *app) { a.name, a.conn.Program = "/opt/acme", "/opt/acme" }
	p.asked("t", "order", "tea")
	for _, args := range []string{"", "--help", "completion bash", "completion zsh", "completion fish", "completion powershell", "help completion", "help import", "answer", "threads", "workers", "doctor", "show", "showw", "show x", "version", "token create", "help serve", "rules -x", "threads --status failed"} {
		r := p.run("", strings.Fields(args)...)
		text := strings.NewReplacer("perdure.db", "", ".perdure", "", "perdure/perdure", "").Replace(r.out + r.err)
		if strings.Contains(text, "perdure") || !strings.Contains(text, "acme") && args != "threads" && args != "doctor" {
			t.Errorf("%s says %s", args, text)
		}
	}
}

// TestBashCompletesByItself, without the package bash-completion.
func TestBashCompletesByItself(t *testing.T) {
	bash, err := exec.LookPath("bash")
	if err != nil {
		if os.Getenv("CI") == "true" {
			t.Fatal("there is no bash")
		}
		t.Skip("there is no bash")
	}
	dir := t.TempDir()
	script := stored(t).run("", "completion", "bash").want(exit.OK).out
	for name, text := range map[string]string{"script": script, "perdure": "#!/bin/sh\nprintf '%s\\n' \"$#:$*\" >>" + dir + "/asked\nprintf 'threads\\n:4\\n'\n"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	c := exec.CommandContext(t.Context(), bash, "--norc", "--noprofile", "-c", `
source `+dir+`/script
compopt() { :; }
for COMP_LINE in "perdure --store sqlite:x.db thr" "perdure threads "; do
	COMP_POINT=${#COMP_LINE} COMP_TYPE=9 COMPREPLY=()
	__start_perdure && echo "${COMPREPLY[@]}"
done`)
	c.Env = []string{"PATH=" + dir + ":/usr/bin:/bin"}
	out, err := c.CombinedOutput()
	if err != nil || string(out) != "threads\nthreads\n" {
		t.Errorf("%v: bash says %s", err, out)
	}
	asked, _ := os.ReadFile(filepath.Join(dir, "asked"))
	if want := "4:__complete --store sqlite:x.db thr\n3:__complete threads \n"; string(asked) != want {
		t.Errorf("the program is asked %q, want %q", asked, want)
	}
}

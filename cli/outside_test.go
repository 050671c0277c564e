package cli

import (
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/perdure/perdure/api"
)

// TestAnEmptyIDIsNone: a variable of a script that is not set names nothing.
func TestAnEmptyIDIsNone(t *testing.T) {
	both(t, func(t *testing.T, p *place) {
		p.asked("one", "order", "tea")
		for _, args := range []string{"answer - --approve", "asks -", "cancel one -", "pause one -", "show one -", "show -", "events -"} {
			given := strings.Fields(args)
			for i := range given {
				given[i] = strings.TrimSuffix(given[i], "-")
			}
			p.run("", given...).want(exitUsage, " is given")
		}
		p.run("", "show", "one").want(exitOK, "waits for")
	})
}

// TestTextThatIsNotUTF8IsRefused wherever it comes from: JSON would change it.
func TestTextThatIsNotUTF8IsRefused(t *testing.T) {
	p := stored(t)
	const name = "M\xfcller"
	p.run("", "run", "wait", "x", "--thread", "t", "--detach").want(exitOK)
	for _, c := range []struct{ in, args string }{
		{name, "run echo -"}, {name, "memory put a/b -"}, {name, "signal t s -"}, {`"` + name + `"`, "run echo -"},
		{"", "run echo " + name}, {"", "memory put a/b " + name}, {"", "run echo x --title " + name}, {"", "signal t s " + name},
	} {
		p.run(c.in, strings.Fields(c.args)...).want(exitUsage, "is not UTF-8", `M\xfcller`)
	}
	p.run("open\n", "chat", "vault", "--thread", "v").want(exitOK)
	ask := strings.Fields(p.run("", "asks", "--thread", "v").want(exitOK).out)[6]
	p.run(name+"\n", "answer", ask, "--secret").want(exitUsage, "is not UTF-8")
	p.run("Müller", "run", "echo", "-").want(exitOK, "Müller")
}

// TestAPortWithoutAServer takes connections and says nothing, or speaks another
// protocol: commands end soon, and say so in one line.
func TestAPortWithoutAServer(t *testing.T) {
	for name, hello := range map[string]string{"silent": "", "SSH": "SSH-2.0-x\x1b[31m\r\n"} {
		t.Run(name, func(t *testing.T) {
			l, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			defer l.Close()
			go func() {
				for {
					c, err := l.Accept()
					if err != nil {
						return
					}
					io.WriteString(c, hello)
					go io.Copy(io.Discard, c)
				}
			}()
			p := &place{t: t, flags: []string{"--server", "http://" + l.Addr().String()}, setUp: func(a *app) { a.patience = [2]time.Duration{1, 20 * time.Millisecond} }}
			for _, args := range []string{"threads", "run echo x", "events t -f", "verify t", "answer a --approve"} {
				r := p.run("", strings.Fields(args)...).want(exitUnavailable, "does not answer as a Perdure server does")
				if strings.Count(r.err, "\n") != 1 {
					t.Errorf("%s says %q", args, r.err)
				}
			}
		})
	}
}

// TestASlowServerIsWaitedFor if it is there.
func TestASlowServerIsWaitedFor(t *testing.T) {
	asked := make(chan struct{})
	ts := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == api.HealthGet.Path {
			close(asked)
		} else {
			<-asked
		}
		w.Header().Set("Content-Type", "application/json")
		w.Write([]byte("{}"))
	}))
	defer ts.Close()
	p := &place{t: t, flags: []string{"--server", ts.URL}, setUp: func(a *app) { a.patience = [2]time.Duration{1, time.Minute} }}
	p.run("", "threads").want(exitOK)
}

// TestAProgramHasItsOwnName in help, hints, errors and what shells complete.
func TestAProgramHasItsOwnName(t *testing.T) {
	p := stored(t)
	p.setUp = func(a *app) { a.name = "/opt/acme" }
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
		t.Skip("there is no bash")
	}
	dir := t.TempDir()
	script := stored(t).run("", "completion", "bash").want(exitOK).out
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

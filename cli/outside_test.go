package cli

import (
	"context"
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

	"github.com/perdure/perdure"
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
		if os.Getenv("CI") == "true" {
			t.Fatal("there is no bash")
		}
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

// TestAnAskIsOnOneScreen with the line where a person decides, also on a small one.
func TestAnAskIsOnOneScreen(t *testing.T) {
	p := stored(t)
	id := p.asked("t", "order", strings.Repeat("a very long list of tea ", 40))
	p.setUp = func(a *app) { a.forced, a.columns, a.lines = true, 60, 12 }
	r := p.run("s\n", "answer", id).want(exitOK, "not shown", "[y]es")
	if n := strings.Count(r.out, "\n"); n > 12 {
		t.Errorf("%d lines:\n%s", n, r.out)
	}
}

// TestBrokenJSONIsMentioned where it becomes a text.
func TestBrokenJSONIsMentioned(t *testing.T) {
	p := stored(t)
	p.run("", "run", "echo", "[1,2").want(exitOK, "not valid JSON", "[1,2\n")
	p.run("", "memory", "put", "a/b", `{"a":`).want(exitOK, "not valid JSON")
	if r := p.run("", "run", "echo", "plain [1]").want(exitOK); strings.Contains(r.err, "JSON") {
		t.Error(r.err)
	}
}

// TestIDsThatDifferLookDifferent, however they differ in spaces.
func TestIDsThatDifferLookDifferent(t *testing.T) {
	seen := map[string]string{}
	for _, id := range []string{"pay", " pay", "pay ", "  pay", "p ay", "p  ay", "p   ay", "p\u2000ay", "p\u00a0ay", "\u00a0pay", "p\tay", "pay\n"} {
		if other, ok := seen[name(id)]; ok {
			t.Errorf("%q looks like %q: %s", id, other, name(id))
		}
		seen[name(id)] = id
	}
	if name("my trip") != "my trip" || label("p\u2000ay") != "p<U+2000>ay" {
		t.Errorf("%q, %q", name("my trip"), label("p\u2000ay"))
	}
}

// TestLookingMakesNoStore where there is none.
func TestLookingMakesNoStore(t *testing.T) {
	for _, url := range []string{"sqlite:", "file:"} {
		file := filepath.Join(t.TempDir(), "typo")
		p := &place{t: t, flows: testFlows(), flags: []string{"--store", url + file}}
		for _, args := range []string{"threads", "show t", "asks", "memory list", "token list", "erase t --yes", "verify t", "flows"} {
			p.run("", strings.Fields(args)...).want(exitUnavailable, "there is no store", "make new ones")
		}
		if _, err := os.Stat(file); err == nil {
			t.Errorf("%s was made", file)
		}
		p.run("", "run", "echo", "x").want(exitOK)
		p.run("", "threads").want(exitOK, "echo")
	}
}

// TestAFlagWinsOverTheEnvironment: a server or a store.
func TestAFlagWinsOverTheEnvironment(t *testing.T) {
	here, there := stored(t), served(t)
	here.run("", "run", "echo", "x", "--thread", "here").want(exitOK)
	there.run("", "run", "echo", "x", "--thread", "there").want(exitOK)
	env := map[string]string{"PERDURE_SERVER": there.flags[1]}
	for _, p := range []*place{here, there, {t: t, flows: here.flows}} {
		p.setUp = func(a *app) { a.env = func(name string) string { return env[name] } }
	}
	here.run("", "threads").want(exitOK, "here")
	env = map[string]string{"PERDURE_STORE": here.flags[1]}
	there.run("", "threads").want(exitOK, "there")
	env["PERDURE_SERVER"] = there.flags[1]
	there.run("", "threads").want(exitOK, "there")
	(&place{t: t, setUp: here.setUp}).run("", "threads").want(exitUsage, "not both")
}

// TestWhatIsVerified: a thread before a file of the same name, unless that is
// meant.
func TestWhatIsVerified(t *testing.T) {
	p := stored(t)
	t.Chdir(t.TempDir())
	p.run("", "run", "echo", "x", "--thread", "t").want(exitOK)
	if err := os.WriteFile("t", []byte("no export"), 0o600); err != nil {
		t.Fatal(err)
	}
	p.run("", "verify", "t").want(exitOK, "good: thread t")
	if r := p.run("", "verify", "./t"); r.code == exitOK {
		t.Errorf("the file is good: %s", r.out)
	}
	p.run("", "export", "t", "-o", "u").want(exitOK)
	p.run("", "verify", "u").want(exitOK, "good: thread t")
	(&place{t: t}).run("", "verify", "u").want(exitOK, "good: thread t")
	p.run("", "verify", ".").want(exitUsage, "is a folder")
	p.run("", "import", ".").want(exitUsage, "is a folder")
	p.run("", "import", "u").want(exitConflict, "--as")
}

// TestImportOfATrustedKey shows who vouches for what was imported.
func TestImportOfATrustedKey(t *testing.T) {
	p, q := stored(t), stored(t)
	file := filepath.Join(t.TempDir(), "t.jsonl")
	p.run("", "run", "echo", "x", "--thread", "t").want(exitOK)
	p.run("", "export", "t", "-o", file).want(exitOK)
	_, key, _ := strings.Cut(p.run("", "verify", file).want(exitOK).out, "signed by ")
	key = strings.TrimSpace(key)
	q.run("", "import", file).want(exitOK).only("t\n")
	q.run("", "show", "t").want(exitOK, "not signed by a trusted key")
	q.run("", "import", file, "--as", "u", "--trust-key", key).want(exitOK).only("u\n")
	q.run("", "show", "u").want(exitOK, "imported t up to", "signed by "+key)
	q.run("", "threads").want(exitOK, "succeeded, imported")
	q.run("", "import", file, "--as", "v", "--trust-key", "nonsense").want(exitUsage, "no public key")
}

// TestEventsAfter lists later events only.
func TestEventsAfter(t *testing.T) {
	both(t, func(t *testing.T, p *place) {
		p.run("", "run", "echo", "x", "--thread", "t").want(exitOK)
		all := strings.SplitAfter(p.run("", "events", "t").want(exitOK).out, "\n")
		p.run("", "events", "t", "--after", "2").want(exitOK).only(strings.Join(all[2:], ""))
		p.run("", "events", "t", "--after", "999").want(exitUsage, "it ends at 5")
		p.run("", "events", "t", "--after", "x").want(exitUsage, "--after")
	})
}

// TestAGroupThatFailedFast shows which branch failed, and what was closed by it.
func TestAGroupThatFailedFast(t *testing.T) {
	p := stored(t)
	p.flows = append(p.flows, perdure.NewFlow("race", func(ctx context.Context, _ any) (string, error) {
		g := perdure.NewGroup(ctx, perdure.FailFast())
		g.Go("bad", func(ctx context.Context) error {
			_, err := perdure.Step(ctx, "call", func(context.Context) (int, error) { return 0, errBroken })
			return err
		})
		g.Go("slow", func(ctx context.Context) error {
			_, err := perdure.Receive[string](ctx, "paid", "payment", 0)
			return err
		})
		return "", g.Wait()
	}))
	p.run("", "run", "race", "--thread", "t").want(exitFailed, "the supplier is")
	p.run("", "show", "t").want(exitOK, "✗ bad ", "✗   call ", "· slow/paid ", "given up: for the signal payment")
}

package cli

import (
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/perdure/perdure/api"
)

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
		p.setUp = func(a *app) { a.term.Env = func(name string) string { return env[name] } }
	}
	here.run("", "threads").want(exitOK, "here")
	env = map[string]string{"PERDURE_STORE": here.flags[1]}
	there.run("", "threads").want(exitOK, "there")
	env["PERDURE_SERVER"] = there.flags[1]
	there.run("", "threads").want(exitOK, "there")
	(&place{t: t, setUp: here.setUp}).run("", "threads").want(exitUsage, "not both")
}

func TestAddressesAndListsAsPeopleTypeThem(t *testing.T) {
	for given, want := range map[string]string{
		"localhost:7373": "http://localhost:7373", "127.0.0.1:1": "http://127.0.0.1:1", "[::1]:1": "http://[::1]:1",
		"agents.example.com:443": "https://agents.example.com:443", "nonsense": "nonsense", "http://x:1": "http://x:1", "https://x/y:1": "https://x/y:1",
	} {
		if got := withScheme(given); got != want {
			t.Errorf("%s is %s, want %s", given, got, want)
		}
	}
	p := served(t)
	address := strings.TrimPrefix(p.flags[1], "http://")
	p.flags = []string{"--server", address}
	p.run("", "flows").want(exitOK, "echo")
	p = stored(t)
	p.run("", "token", "create", "ada", "--scopes", "read,run", "--groups", "a, b", "--groups", "c").want(exitOK)
	p.run("", "token", "list").want(exitOK, "read run", "a b c")
	p.run("", "token", "create", "ada", "--scopes", "read,rum").want(exitUsage, "rum")
	p.flags = []string{"--store", "postgres://x"}
	p.run("", "flows").want(exitUnavailable, `no driver for "postgres"`, "file, memory, sqlite")
}

package cli

import (
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/perdure/perdure/api"
	"github.com/perdure/perdure/cli/internal/exit"
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
			p := &place{t: t, flags: []string{"--server", "http://" + l.Addr().String()}, setUp: func(a *app) { a.conn.Patience = [2]time.Duration{1, 500 * time.Millisecond} }} // enough to connect on a busy machine
			for _, args := range []string{"threads", "run echo x", "events t -f", "verify t", "answer a --approve"} {
				r := p.run("", strings.Fields(args)...).want(exit.Unavailable, "does not answer as a Perdure server does")
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
	p := &place{t: t, flags: []string{"--server", ts.URL}, setUp: func(a *app) { a.conn.Patience = [2]time.Duration{1, time.Minute} }}
	p.run("", "threads").want(exit.OK)
}

// TestAnUnavailableServerIsWaitedFor says once that it waits.
func TestAnUnavailableServerIsWaitedFor(t *testing.T) {
	asked := 0
	ts := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		if asked++; asked <= 6 {
			w.WriteHeader(http.StatusServiceUnavailable)
		}
		w.Write([]byte("{}"))
	}))
	defer ts.Close()
	r := (&place{t: t, flags: []string{"--server", ts.URL}}).run("", "threads")
	r.want(exit.OK)
	if n := strings.Count(r.err, "unavailable now (503)"); n != 1 {
		t.Errorf("it said %d times that it waits:\n%s", n, r.err)
	}
}

// TestAServerThatIsNotTrusted has a certificate of an authority that nobody knows.
func TestAServerThatIsNotTrusted(t *testing.T) {
	asked := 0
	ts := httptest.NewUnstartedServer(nil)
	ts.Config.ErrorLog = log.New(io.Discard, "", 0)
	ts.Config.ConnState = func(_ net.Conn, state http.ConnState) {
		if state == http.StateNew {
			asked++ // one connection at a time
		}
	}
	ts.StartTLS()
	p := &place{t: t, flags: []string{"--server", ts.URL}}
	p.run("", "threads").want(exit.Unavailable, "the certificate of 127.0.0.1", "not trusted here: tls:", "authority", "SSL_CERT_FILE")
	ts.Close()
	if asked != 1 {
		t.Errorf("the server was asked %d times", asked)
	}
}

// TestLookingMakesNoStore where there is none.
func TestLookingMakesNoStore(t *testing.T) {
	for _, url := range []string{"sqlite:", "file:"} {
		file := filepath.Join(t.TempDir(), "typo")
		p := &place{t: t, flows: testFlows(), flags: []string{"--store", url + file}}
		for _, args := range []string{"threads", "show t", "asks", "memory list", "token list", "erase t --yes", "verify t", "flows"} {
			p.run("", strings.Fields(args)...).want(exit.Unavailable, "there is no store", "create new ones")
		}
		if _, err := os.Stat(file); err == nil {
			t.Errorf("%s was made", file)
		}
		p.run("", "run", "echo", "x").want(exit.OK)
		p.run("", "threads").want(exit.OK, "echo")
	}
}

// TestRunBeginsAStore in an empty folder, for a flow that the program has.
func TestRunBeginsAStore(t *testing.T) {
	t.Chdir(t.TempDir())
	state := t.TempDir()
	p := &place{t: t, flows: testFlows(), setUp: func(a *app) {
		a.term.Env = func(name string) string { return map[string]string{"XDG_STATE_HOME": state}[name] }
	}}
	for _, args := range []string{"threads", "run nope x", "memory put a/b x"} {
		p.run("", strings.Fields(args)...).want(exit.Unavailable, "there is no store in ./.perdure")
	}
	if _, err := os.Stat(".perdure"); err == nil {
		t.Fatal("a store was created")
	}
	p.run("", "run", "echo", "tea").want(exit.OK, "a new store in ./.perdure", "tea")
	if r := p.run("", "run", "echo", "x").want(exit.OK); strings.Contains(r.err, "new store") {
		t.Errorf("it begins again: %s", r.err)
	}
	p.run("", "threads").want(exit.OK, "echo")
	if _, err := os.Stat(".perdure/.gitignore"); err != nil {
		t.Error(err)
	}
}

// TestAFlagWinsOverTheEnvironment: a server or a store.
func TestAFlagWinsOverTheEnvironment(t *testing.T) {
	here, there := stored(t), served(t)
	here.run("", "run", "echo", "x", "--thread", "here").want(exit.OK)
	there.run("", "run", "echo", "x", "--thread", "there").want(exit.OK)
	env := map[string]string{"PERDURE_SERVER": there.flags[1]}
	for _, p := range []*place{here, there, {t: t, flows: here.flows}} {
		p.setUp = func(a *app) { a.term.Env = func(name string) string { return env[name] } }
	}
	here.run("", "threads").want(exit.OK, "here")
	env = map[string]string{"PERDURE_STORE": here.flags[1]}
	there.run("", "threads").want(exit.OK, "there")
	env["PERDURE_SERVER"] = there.flags[1]
	there.run("", "threads").want(exit.OK, "there")
	(&place{t: t, setUp: here.setUp}).run("", "threads").want(exit.BadUsage, "not both")
}

func TestAddressesAndListsAsPeopleTypeThem(t *testing.T) {
	p := served(t)
	address := strings.TrimPrefix(p.flags[1], "http://")
	p.flags = []string{"--server", address}
	p.run("", "flows").want(exit.OK, "echo")
	p = stored(t)
	p.run("", "token", "create", "ada", "--scopes", "read,run", "--groups", "a, b", "--groups", "c").want(exit.OK)
	p.run("", "token", "list").want(exit.OK, "read run", "a b c")
	p.run("", "token", "create", "ada", "--scopes", "read,rum").want(exit.BadUsage, "rum")
	p.flags = []string{"--store", "postgres://x"}
	p.run("", "flows").want(exit.BadUsage, `no driver for "postgres"`, "memory, sqlite", `import _ "github.com/perdure/perdure/store/pgstore"`)
	p.flags = []string{"--store", "nonsense"}
	for _, args := range []string{"threads", "backup dir", "bench", "migrate --from nonsense --to file:x", "worker"} {
		p.run("", strings.Fields(args)...).want(exit.BadUsage, "has no scheme")
	}
	p.flags = []string{"--store", "s3://bucket/agents"}
	p.run("", "doctor").want(exit.Failed, "store/s3store", "cli.Main")
}

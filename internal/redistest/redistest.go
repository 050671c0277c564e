// Package redistest provides tests with Redis servers: one that it starts, or the one
// that $PERDURE_TEST_REDIS names. It imports only the standard library.
package redistest

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/perdure/perdure/internal/freeport"
)

// Env is the environment variable with the URL of a server to use instead of a new
// one, which has to be set to appendonly yes and appendfsync always. URL sets it for
// child processes.
const Env = "PERDURE_TEST_REDIS"

// Always are the settings with which an acknowledged write survives a power failure.
var Always = []string{"--appendonly", "yes", "--appendfsync", "always"}

var shared, volatile struct {
	sync.Mutex
	url    string
	err    error
	server *Server
}

// URL returns the URL of a server that all tests of this process and their child
// processes share. The server ends with the process. If there is none and Redis is
// not installed, URL skips the test, or fails it with CI=true.
func URL(tb testing.TB) string {
	tb.Helper()
	shared.Lock()
	defer shared.Unlock()
	if shared.url == "" && shared.err == nil {
		if shared.url = os.Getenv(Env); shared.url == "" {
			if shared.server, shared.err = Launch("", Always...); shared.err == nil {
				shared.url = shared.server.URL
				os.Setenv(Env, shared.url)
			}
		}
	}
	skip(tb, shared.err)
	return shared.url
}

// Volatile is URL for a server that keeps nothing on disk, which tests share that do
// not end it.
func Volatile(tb testing.TB) string {
	tb.Helper()
	volatile.Lock()
	defer volatile.Unlock()
	if volatile.url == "" && volatile.err == nil {
		if volatile.server, volatile.err = Launch(""); volatile.err == nil {
			volatile.url = volatile.server.URL
		}
	}
	skip(tb, volatile.err)
	return volatile.url
}

func skip(tb testing.TB, err error) {
	tb.Helper()
	switch {
	case err == nil:
	case errors.Is(err, errMissing) && os.Getenv("CI") != "true":
		tb.Skipf("this test needs Redis: %v", err)
	default:
		tb.Fatalf("cannot start Redis: %v", err)
	}
}

// Prefix returns the URL of the store that belongs to a folder: its prefix is a hash
// of the folder.
func Prefix(base, dir string) string {
	sum := sha256.Sum256([]byte(dir))
	return With(base, "prefix", "t"+hex.EncodeToString(sum[:8]))
}

// With returns a URL with a parameter set.
func With(base, key, value string) string {
	u, err := url.Parse(base)
	if err != nil {
		panic(err)
	}
	q := u.Query()
	q.Set(key, value)
	u.RawQuery = q.Encode()
	return u.String()
}

// Name returns a new prefix.
func Name() string { return "t" + rand.Text()[:16] }

// A Server is a Redis server.
type Server struct {
	URL  string
	Port string
	Dir  string // of its data

	args  []string
	own   bool // Dir is this package's
	cmd   *exec.Cmd
	alive *os.File // open as long as this process lives, which is how long the server runs
	pid   int
}

// Start starts a server with settings, such as Always, that ends with the test.
func Start(tb testing.TB, settings ...string) *Server {
	tb.Helper()
	s, err := Launch("", settings...)
	skip(tb, err)
	tb.Cleanup(s.Stop)
	return s
}

var errMissing = errors.New("a program is not installed")

// Launch starts a server on a free port that keeps its data in a folder, one of its
// own for "". It ends with this process, or when it is stopped.
func Launch(dir string, settings ...string) (*Server, error) {
	s := &Server{Dir: dir}
	if dir == "" {
		var err error
		if s.Dir, err = os.MkdirTemp("", "perdure-redis-"); err != nil {
			return nil, err
		}
		s.own = true
	}
	var err error
	if _, s.Port, err = freeport.Address(); err != nil {
		return nil, err
	}
	s.URL = "redis://127.0.0.1:" + s.Port
	s.args = append([]string{"--port", s.Port, "--bind", "127.0.0.1", "--dir", s.Dir, "--save", "", "--maxclients", "1000", "--logfile", ""}, settings...)
	if err := s.Run(); err != nil {
		s.Stop()
		return nil, err
	}
	return s, nil
}

// script runs a server until its input ends, which happens when the process that
// started it ends, even by kill -9. Then it also removes a folder of its own.
const script = `"$@" >"$LOG" 2>&1 & pid=$!
echo $pid
read over
kill -KILL $pid; wait $pid
test "$over" = keep || test -z "$OWN" || rm -rf "$OWN"
`

// Run starts a server again that was killed, with its data, and waits until it
// answers.
func (s *Server) Run() error {
	program, err := exec.LookPath("redis-server")
	if err != nil {
		if program, err = exec.LookPath("valkey-server"); err != nil {
			return fmt.Errorf("%w: Redis: on Debian, apt-get install redis-server, or set %s to the URL of a server", errMissing, Env)
		}
	}
	s.cmd = exec.Command("sh", append([]string{"-c", script, "sh", program}, s.args...)...)
	log := filepath.Join(os.TempDir(), "perdure-redis-"+s.Port+".log")
	s.cmd.Env = append(os.Environ(), "LOG="+log, "OWN=")
	if s.own {
		s.cmd.Env = append(s.cmd.Env, "OWN="+s.Dir)
	}
	defer os.Remove(log) // the server keeps it open
	group(s.cmd)
	in, alive, err := os.Pipe()
	if err != nil {
		return err
	}
	s.cmd.Stdin, s.alive = in, alive
	out, err := s.cmd.StdoutPipe()
	if err == nil {
		err = s.cmd.Start()
	}
	in.Close()
	if err != nil {
		return err
	}
	if _, err := fmt.Fscan(out, &s.pid); err != nil {
		return err
	}
	for begin := time.Now(); ; time.Sleep(10 * time.Millisecond) {
		if s.answers() {
			return nil
		}
		said, _ := os.ReadFile(log)
		if time.Since(begin) > time.Minute || strings.Contains(string(said), "Exiting") || strings.Contains(string(said), "FATAL") {
			return fmt.Errorf("redis-server does not answer:\n%s", said)
		}
	}
}

// answers reports whether the server has loaded its data.
func (s *Server) answers() bool {
	c, err := net.DialTimeout("tcp", "127.0.0.1:"+s.Port, time.Second)
	if err != nil {
		return false
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(time.Second))
	if _, err := c.Write([]byte("PING\r\n")); err != nil {
		return false
	}
	buf := make([]byte, 256)
	n, err := c.Read(buf)
	said := string(buf[:n])
	return err == nil && (strings.HasPrefix(said, "+PONG") || strings.HasPrefix(said, "-NOAUTH"))
}

// Pid is the id of the server's process.
func (s *Server) Pid() int { return s.pid }

// Kill ends the server at once, as kill -9 does. Its data stays.
func (s *Server) Kill() {
	if s.alive != nil {
		_, _ = s.alive.WriteString("keep\n") // it may have ended
		s.alive.Close()
		_ = s.cmd.Wait() // it is killed
		s.alive = nil
	}
}

// Stop ends the server and removes its data.
func (s *Server) Stop() {
	s.Kill()
	if s.own {
		os.RemoveAll(s.Dir)
	}
}

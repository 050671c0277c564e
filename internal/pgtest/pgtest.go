// Package pgtest provides tests with a PostgreSQL server: one that it starts, or the
// one that $PERDURE_TEST_POSTGRES names. It imports only the standard library.
package pgtest

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

// Env is the environment variable with the URL of a database to use instead of a new
// server. Tests create schemas there. URL sets it for child processes.
const Env = "PERDURE_TEST_POSTGRES"

var server struct {
	sync.Mutex
	url   string
	err   error
	alive *os.File // open as long as this process lives, which is how long the server runs
}

// URL returns the URL of a database on a server that all tests of this process
// and their child processes share. The server ends with the process. If there is
// none and PostgreSQL is not installed, URL skips the test, or fails it with
// CI=true.
func URL(tb testing.TB) string {
	tb.Helper()
	server.Lock()
	defer server.Unlock()
	if server.url == "" && server.err == nil {
		if server.url = os.Getenv(Env); server.url == "" {
			var s *Server
			if s, server.err = Launch(); server.err == nil {
				server.url, server.alive = s.URL, s.alive
				os.Setenv(Env, s.URL)
			}
		}
	}
	skip(tb, server.err)
	return server.url
}

func skip(tb testing.TB, err error) {
	tb.Helper()
	switch {
	case err == nil:
	case errors.Is(err, errMissing) && os.Getenv("CI") != "true":
		tb.Skipf("this test needs PostgreSQL: %v", err)
	default:
		tb.Fatalf("cannot start PostgreSQL: %v", err)
	}
}

// Schema returns the URL of the store that belongs to a folder: its schema is named
// after a hash of the folder.
func Schema(base, dir string) string {
	sum := sha256.Sum256([]byte(dir))
	return With(base, "schema", "t"+hex.EncodeToString(sum[:8]))
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

// A Server is a PostgreSQL server for one test, which may do anything to it.
type Server struct {
	URL  string
	Dir  string // of its data
	Port string

	home  string // of its log
	bin   string
	alive *os.File
	cmd   *exec.Cmd
}

// Start starts a server that ends with the test.
func Start(tb testing.TB) *Server {
	tb.Helper()
	s, err := Launch()
	skip(tb, err)
	tb.Cleanup(s.Stop)
	return s
}

// StartOn is Start for a server whose data, or WAL, or both are in given folders,
// such as those of a small disk: "" is one of its own. They have to be empty, and
// become those of the server's user. The WAL is in segments of 1 MiB.
func StartOn(tb testing.TB, data, wal string) *Server {
	tb.Helper()
	s, err := launch(data, wal, "--wal-segsize=1")
	skip(tb, err)
	tb.Cleanup(s.Stop)
	return s
}

// Log returns what the server has said.
func (s *Server) Log() string {
	log, _ := os.ReadFile(filepath.Join(s.home, "log"))
	return string(log)
}

// Pid returns the id of the process whose children serve the clients.
func (s *Server) Pid() (pid int, err error) {
	text, err := os.ReadFile(filepath.Join(s.Dir, "postmaster.pid"))
	if err == nil {
		_, err = fmt.Sscan(string(text), &pid)
	}
	return pid, err
}

// Stop stops the server and removes its files.
func (s *Server) Stop() {
	s.alive.Close()
	_ = s.cmd.Wait()
}

// Ctl runs pg_ctl on the server, as in Ctl("restart", "-m", "immediate").
func (s *Server) Ctl(args ...string) error {
	cmd := exec.Command(filepath.Join(s.bin, "pg_ctl"), append([]string{"-D", s.Dir, "-w", "-l", filepath.Join(s.home, "log")}, args...)...)
	if err := asUser(cmd, ""); err != nil {
		return err
	}
	if err := cmd.Run(); err != nil { // not CombinedOutput: the server would keep its pipe open
		return fmt.Errorf("pg_ctl %s: %w\n%s", strings.Join(args, " "), err, s.Log())
	}
	return nil
}

var errMissing = errors.New("a program is not installed")

// script creates a database and serves it until its input ends, which happens when the
// process that started it ends, even by kill -9.
const script = `
"$BIN/initdb" -D "$DATA" -U postgres -A trust -E UTF8 --no-locale --no-sync "$@" >"$DIR/log" 2>&1 || { cat "$DIR/log"; rm -rf "$DIR"; exit 1; }
printf "listen_addresses = '127.0.0.1'\nport = $PORT\nunix_socket_directories = '$DIR'\nmax_connections = 300\nshared_buffers = 64MB\n" >>"$DATA/postgresql.conf"
"$BIN/pg_ctl" -D "$DATA" -l "$DIR/log" -w start >/dev/null 2>&1 || { cat "$DIR/log"; rm -rf "$DIR"; exit 1; }
echo ready
read over
"$BIN/pg_ctl" -D "$DATA" -m immediate stop >/dev/null 2>&1
rm -rf "$DIR"
`

// Launch starts a server on a free port, as another user if this one is root. It ends
// with this process, or when it is stopped.
func Launch() (*Server, error) { return launch("", "") }

func launch(data, wal string, options ...string) (*Server, error) {
	bin, err := Programs()
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp("", "perdure-pg-")
	if err != nil {
		return nil, err
	}
	_, port, err := freeport.Address()
	if err != nil {
		return nil, err
	}
	if data == "" {
		data = filepath.Join(dir, "data")
	} else if err := asUser(new(exec.Cmd), data); err != nil {
		return nil, err
	}
	if wal != "" {
		if err := asUser(new(exec.Cmd), wal); err != nil {
			return nil, err
		}
		options = append(options, "--waldir="+wal)
	}
	s := &Server{Dir: data, Port: port, home: dir, bin: bin, URL: "postgres://postgres@127.0.0.1:" + port + "/postgres?sslmode=disable"}
	s.cmd = exec.Command("sh", append([]string{"-c", script, "sh"}, options...)...)
	s.cmd.Dir = dir
	s.cmd.Env = append(os.Environ(), "BIN="+bin, "DIR="+dir, "DATA="+s.Dir, "PORT="+port, "LC_ALL=C")
	if err := asUser(s.cmd, dir); err != nil {
		return nil, err
	}
	in, alive, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	out, said, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	s.cmd.Stdin, s.cmd.Stdout, s.cmd.Stderr, s.alive = in, said, said, alive
	err = s.cmd.Start()
	in.Close()
	said.Close()
	if err != nil {
		return nil, err
	}
	var text strings.Builder
	for buf := make([]byte, 4096); !strings.HasSuffix(text.String(), "ready\n"); {
		n, err := out.Read(buf)
		text.Write(buf[:n])
		if err != nil {
			s.Stop()
			return nil, fmt.Errorf("%w:\n%s", err, text.String())
		}
	}
	return s, nil
}

// Programs returns the folder of PostgreSQL's programs.
func Programs() (string, error) {
	found, _ := filepath.Glob("/usr/lib/postgresql/*/bin/pg_ctl") // Debian, by version
	if path, err := exec.LookPath("pg_ctl"); err == nil {
		found = append(found, path)
	}
	if len(found) == 0 {
		return "", fmt.Errorf("%w: PostgreSQL: on Debian, apt-get install postgresql, or set %s to the URL of a database", errMissing, Env)
	}
	return filepath.Dir(found[len(found)-1]), nil
}

// Bouncer starts PgBouncer in transaction mode before the server of URL, and
// returns the URL through it. It ends with the test, or with this process.
func Bouncer(tb testing.TB) string {
	tb.Helper()
	url, stop, err := bouncer(URL(tb))
	skip(tb, err)
	tb.Cleanup(stop)
	return url
}

// Services starts PostgreSQL, and PgBouncer before it, and returns their URLs. They
// end with stop, or with this process.
func Services() (direct, pooled string, stop func(), err error) {
	s, err := Launch()
	if err != nil {
		return "", "", nil, err
	}
	pooled, stopBouncer, err := bouncer(s.URL)
	if err != nil {
		s.Stop()
		return "", "", nil, err
	}
	return s.URL, pooled, func() {
		stopBouncer()
		s.Stop()
	}, nil
}

func bouncer(base string) (through string, stop func(), err error) {
	program, err := exec.LookPath("pgbouncer")
	if err != nil {
		if program, err = exec.LookPath("/usr/sbin/pgbouncer"); err != nil {
			return "", nil, fmt.Errorf("%w: pgbouncer: on Debian, apt-get install pgbouncer", errMissing)
		}
	}
	u, err := url.Parse(base)
	if err != nil {
		return "", nil, err
	}
	_, own, err := freeport.Address()
	if err != nil {
		return "", nil, err
	}
	settings := "[databases]\npostgres = host=" + u.Hostname() + " port=" + u.Port() + " user=postgres\n[pgbouncer]\nlisten_addr = 127.0.0.1\nlisten_port = " + own +
		"\nauth_type = any\npool_mode = transaction\ndefault_pool_size = 5\nmax_client_conn = 500\nunix_socket_dir =\n"
	if stop, err = run(program, settings); err != nil {
		return "", nil, err
	}
	u.Host = "127.0.0.1:" + own
	for begin := time.Now(); ; time.Sleep(20 * time.Millisecond) {
		c, err := net.Dial("tcp", u.Host)
		if err == nil {
			return u.String(), stop, c.Close()
		}
		if time.Since(begin) > time.Minute {
			stop()
			return "", nil, fmt.Errorf("pgbouncer does not listen: %w", err)
		}
	}
}

// run runs another program, with the name of a file that has its settings, as the
// user that PostgreSQL runs as. It ends with stop, or with this process.
func run(program, settings string) (stop func(), err error) {
	dir, err := os.MkdirTemp("", "perdure-pg-")
	if err != nil {
		return nil, err
	}
	file := filepath.Join(dir, "settings")
	if err := os.WriteFile(file, []byte(settings), 0o644); err != nil {
		return nil, err
	}
	cmd := exec.Command("sh", "-c", `"$0" "$1" >log 2>&1 & pid=$!; read over; kill -KILL $pid; rm -rf "$2"`, program, file, dir)
	cmd.Dir = dir
	if err := asUser(cmd, dir); err != nil {
		return nil, err
	}
	alive, err := cmd.StdinPipe()
	if err == nil {
		err = cmd.Start()
	}
	return func() {
		alive.Close()
		_ = cmd.Wait() // it is killed
	}, err
}

// Name returns a new name for a database or a role.
func Name() string {
	return "t" + strings.ToLower(rand.Text()[:16]) + fmt.Sprint(time.Now().Unix()%1000)
}

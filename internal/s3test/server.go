package s3test

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/perdure/perdure/internal/freeport"
)

// Server is versitygw, which keeps objects as files, as a process of its own.
type Server struct {
	Endpoint string
	Dir      string // of the files of the bucket

	bin   string
	log   string
	alive *os.File // open as long as this process lives, which is how long the server runs
	cmd   *exec.Cmd
}

// script serves until its input ends, which happens when the process that started it
// ends, even by kill -9.
const script = `"$BIN" --quiet --keep-alive --port "$ADDR" --health /health posix "$ROOT" >>"$LOG" 2>&1 & pid=$!; read over; kill -9 $pid`

// Start starts a server that ends with the test. It is built from the modules of
// internal/tools/versitygw; if that is not possible, the test is skipped, or fails with
// CI=true.
func Start(tb testing.TB) *Server {
	tb.Helper()
	if _, err := build(); err != nil && os.Getenv("CI") != "true" {
		tb.Skipf("this test needs versitygw, which cannot be built: %v", err)
	}
	s, err := Launch(tb.TempDir())
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(s.Stop)
	return s
}

// Launch starts a server with its files in a folder. It ends with this process, or when
// it is stopped.
func Launch(dir string) (*Server, error) {
	bin, err := build()
	if err != nil {
		return nil, fmt.Errorf("cannot build versitygw: %w", err)
	}
	addr, _, err := freeport.Address()
	if err != nil {
		return nil, err
	}
	s := &Server{Endpoint: "http://" + addr, Dir: filepath.Join(dir, "data", Bucket), bin: bin, log: filepath.Join(dir, "log")}
	if err := os.MkdirAll(s.Dir, 0o700); err != nil {
		return nil, err
	}
	return s, s.run()
}

// Run starts the server again after Stop.
func (s *Server) Run(tb testing.TB) {
	tb.Helper()
	if err := s.run(); err != nil {
		tb.Fatal(err)
	}
}

func (s *Server) run() error {
	in, alive, err := os.Pipe()
	if err != nil {
		return err
	}
	s.cmd = exec.Command("sh", "-c", script)
	s.cmd.Env = append(os.Environ(), "BIN="+s.bin, "ADDR="+strings.TrimPrefix(s.Endpoint, "http://"), "ROOT="+filepath.Dir(s.Dir), "LOG="+s.log,
		"ROOT_ACCESS_KEY="+AccessKey, "ROOT_SECRET_KEY="+SecretKey)
	s.cmd.Stdin, s.alive = in, alive
	err = s.cmd.Start()
	in.Close()
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	for tick := time.NewTicker(20 * time.Millisecond); ; {
		if resp, err := http.Get(s.Endpoint + "/health"); err == nil {
			resp.Body.Close()
			return nil
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			s.Stop()
			log, _ := os.ReadFile(s.log)
			return fmt.Errorf("versitygw does not answer:\n%s", log)
		}
	}
}

// Stop kills the server. Its files stay.
func (s *Server) Stop() {
	s.alive.Close()
	_ = s.cmd.Wait()
}

// build returns the path of the program. The go command keeps it in its cache.
var build = sync.OnceValues(func() (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Minute)
	defer cancel()
	module, err := exec.CommandContext(ctx, "go", "env", "GOMOD").Output()
	if err != nil {
		return "", err
	}
	cmd := exec.CommandContext(ctx, "go", "tool", "-n", "versitygw")
	cmd.Dir = filepath.Join(filepath.Dir(strings.TrimSpace(string(module))), "internal", "tools", "versitygw")
	cmd.Env = append(os.Environ(), "GOFLAGS=-mod=readonly", "GOWORK=off")
	out, err := cmd.Output()
	if e, ok := err.(*exec.ExitError); ok {
		return "", fmt.Errorf("%w: %s", err, e.Stderr)
	}
	return strings.TrimSpace(string(out)), err
})

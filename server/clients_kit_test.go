//go:build darwin || freebsd || linux || netbsd || openbsd

package server_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/servertest"
	"github.com/perdure/perdure/server"
	"github.com/perdure/perdure/store/sqlitestore"
)

const proofEnv = "PERDURE_PROOF_SERVER"

// proofOrder tells a process what to serve.
type proofOrder struct{ Path, Addr, Origin string }

// proofText is what step i of a run says, word by word.
func proofText(run string, i int) []string {
	words := make([]string, 3+i%5)
	for w := range words {
		words[w] = fmt.Sprintf("%s-%d-%d ", run, i, w)
	}
	return words
}

var proofTalk = perdure.NewFlow("talk", func(ctx context.Context, in struct {
	Name  string `json:"name"`
	Steps int    `json:"steps"`
}) (int, error) {
	for i := range in.Steps {
		_, err := perdure.Step(ctx, fmt.Sprint("say-", i), func(ctx context.Context) (string, error) {
			text := ""
			for _, word := range proofText(in.Name, i) {
				perdure.Delta(ctx, word)
				text += word
				time.Sleep(time.Millisecond) // a model takes its time, too
			}
			return text, nil
		})
		if err != nil {
			return i, err
		}
	}
	return in.Steps, nil
})

// TestProofServer is no test but the process that others start and kill.
func TestProofServer(t *testing.T) {
	text := os.Getenv(proofEnv)
	if text == "" {
		return
	}
	var order proofOrder
	servertest.Check(t, json.Unmarshal([]byte(text), &order))
	go func() {
		io.Copy(io.Discard, os.Stdin)
		os.Exit(3) // the test is gone
	}()
	ctx := context.Background()
	s := servertest.Must(sqlitestore.Open(ctx, order.Path, sqlitestore.Options{}))(t)
	rt := servertest.Must(perdure.New(ctx, s, perdure.Options{Lease: 300 * time.Millisecond}, proofTalk))(t)
	l := servertest.Must(net.Listen("tcp", order.Addr))(t)
	go rt.Work(ctx)
	fmt.Println("~serving")
	h := server.New(rt, server.Options{Retry: 10 * time.Millisecond, Origins: []string{order.Origin}}).HTTPServer()
	t.Fatal(h.Serve(l))
}

// proofServer is a process that serves.
type proofServer struct {
	cmd  *exec.Cmd
	stop io.Closer
}

func startProof(t *testing.T, order proofOrder) *proofServer {
	t.Helper()
	data, _ := json.Marshal(order)
	cmd := exec.Command(os.Args[0], "-test.run=^TestProofServer$", "-test.timeout=10m")
	cmd.Env = append(os.Environ(), proofEnv+"="+string(data))
	cmd.Stderr = os.Stderr
	in := servertest.Must(cmd.StdinPipe())(t)
	out := servertest.Must(cmd.StdoutPipe())(t)
	servertest.Check(t, cmd.Start())
	lines := bufio.NewScanner(out)
	var said []string
	for lines.Scan() {
		if lines.Text() == "~serving" {
			go io.Copy(io.Discard, out)
			return &proofServer{cmd, in}
		}
		said = append(said, lines.Text())
	}
	_ = cmd.Process.Kill()
	_ = cmd.Wait()
	t.Fatalf("the server process does not start: %s", strings.Join(said, "\n"))
	return nil
}

// kill ends the process as a power cut does.
func (p *proofServer) kill() {
	_ = p.cmd.Process.Signal(syscall.SIGKILL)
	_ = p.cmd.Wait()
	p.stop.Close()
}

// proofProxy passes connections on and cuts them after a random number of
// bytes.
type proofProxy struct {
	net.Listener
	target string
	cuts   atomic.Int64
	gentle atomic.Bool // no cuts any more
	wg     sync.WaitGroup
	mu     sync.Mutex
	rng    *rand.Rand
	open   map[net.Conn]bool
}

func newProofProxy(t *testing.T, target string) *proofProxy {
	t.Helper()
	l := servertest.Must(net.Listen("tcp", "127.0.0.1:0"))(t)
	p := &proofProxy{Listener: l, target: target, rng: rand.New(rand.NewPCG(1, 2)), open: map[net.Conn]bool{}}
	p.wg.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			p.wg.Go(func() { p.serve(c) })
		}
	})
	t.Cleanup(func() {
		l.Close()
		p.mu.Lock()
		for c := range p.open {
			c.Close()
		}
		p.mu.Unlock()
		p.wg.Wait()
	})
	return p
}

// serve passes one connection on.
func (p *proofProxy) serve(c net.Conn) {
	defer c.Close()
	p.mu.Lock()
	p.open[c] = true
	p.mu.Unlock()
	defer p.forget(c)
	// The request first: the fetch of some versions of Node never settles if
	// its connection is closed before it has sent anything.
	request := make([]byte, 4<<10)
	n, err := c.Read(request)
	if err != nil {
		return
	}
	up, err := net.Dial("tcp", p.target)
	if err != nil {
		return // the server is dead
	}
	defer p.forget(up)
	defer up.Close()
	if _, err := up.Write(request[:n]); err != nil {
		return
	}
	p.mu.Lock()
	p.open[up] = true
	left := int64(1 + p.rng.IntN(6000))
	hard := p.rng.IntN(2) == 0
	p.mu.Unlock()
	go func() {
		io.Copy(up, c)
		up.Close()
	}()
	buf := make([]byte, 512)
	for {
		n, err := up.Read(buf)
		cut := int64(n) >= left && !p.gentle.Load()
		if cut {
			n = int(left)
		}
		left -= int64(n)
		if _, werr := c.Write(buf[:n]); werr != nil || err != nil {
			return
		}
		if cut {
			p.cuts.Add(1)
			if hard {
				_ = c.(*net.TCPConn).SetLinger(0)
			}
			return
		}
		left = max(left, 1)
	}
}

func (p *proofProxy) forget(c net.Conn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.open, c)
}

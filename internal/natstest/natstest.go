// Package natstest provides tests with NATS servers: one in the process of the test,
// and clusters of processes that can be killed. Only tests and cmd/bench import it, since it
// links the server.
package natstest

import (
	"bufio"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"

	"github.com/perdure/perdure/internal/freeport"
)

// Env is the environment variable with the URL of the server that a process shares with
// its child processes. URL sets it.
const Env = "PERDURE_TEST_NATS"

// envNode makes a process a server instead of a test, see init.
const envNode = "PERDURE_TEST_NATS_NODE"

var shared struct {
	sync.Mutex
	url  string
	node *Node // kept, since the server ends when its pipe is closed
}

// URL returns the URL of a server that all tests of this process and their child
// processes share. It ends with the process.
func URL(tb testing.TB) string {
	tb.Helper()
	shared.Lock()
	defer shared.Unlock()
	if shared.url == "" {
		if shared.url = os.Getenv(Env); shared.url == "" {
			dir, err := os.MkdirTemp("", "perdure-nats-")
			if err != nil {
				tb.Fatal(err)
			}
			n := newNode(Config{Dir: dir, Own: true, User: "app"})
			if err := n.Start(); err != nil {
				tb.Fatal(err)
			}
			shared.url, shared.node = n.URL(), n
			os.Setenv(Env, shared.url)
		}
	}
	return shared.url
}

// Stream returns the URL of the store that belongs to a folder: its stream is named
// after a hash of the folder.
func Stream(base, dir string) string {
	sum := sha256.Sum256([]byte(dir))
	return With(base, "stream", "t"+hex.EncodeToString(sum[:8]))
}

// Volatile returns the URL of an empty store of the test in the memory of the server
// that tests share.
func Volatile(tb testing.TB) string {
	tb.Helper()
	return With(Stream(URL(tb), tb.TempDir()), "storage", "memory")
}

// Settle waits until the server of URL has no clients whose names begin with client and
// end with the id of a process other than this one and its parent: it has then received
// all that a killed one had sent.
func Settle(ctx context.Context, base, client string) error {
	u, err := url.Parse(base)
	if err != nil {
		return err
	}
	nc, err := nats.Connect(fmt.Sprintf("nats://system:secret@%s", u.Host))
	if err != nil {
		return err
	}
	defer nc.Close()
	ctx, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	own, parent := fmt.Sprint(client, os.Getpid()), fmt.Sprint(client, os.Getppid())
	for {
		m, err := nc.RequestWithContext(ctx, "$SYS.REQ.SERVER.PING.CONNZ", []byte(`{"limit":10000}`))
		if err != nil {
			return err
		}
		var answer struct {
			Data struct {
				Connections []struct{ Name string }
			}
		}
		if err := json.Unmarshal(m.Data, &answer); err != nil {
			return err
		}
		if !slices.ContainsFunc(answer.Data.Connections, func(c struct{ Name string }) bool {
			return strings.HasPrefix(c.Name, client) && c.Name != own && c.Name != parent
		}) {
			return nil
		}
	}
}

// With returns a URL with a parameter set.
func With(base, key, value string) string {
	servers, query, _ := strings.Cut(base, "?")
	q, err := url.ParseQuery(query)
	if err != nil {
		panic(err)
	}
	q.Set(key, value)
	return servers + "?" + q.Encode()
}

// Inside starts a server in this process, for a test that freezes and kills the process
// with its server.
func Inside(dir string) (url string, stop func(), err error) {
	c := Config{Dir: dir, Name: "inside", Port: freePort(), SyncAlways: true}
	s, err := server.NewServer(options(c))
	if err != nil {
		return "", nil, err
	}
	s.Start()
	if !s.ReadyForConnections(30 * time.Second) {
		s.Shutdown()
		return "", nil, errors.New("the NATS server in this process does not accept clients")
	}
	return newNode(c).URL(), func() {
		s.Shutdown()
		s.WaitForShutdown()
	}, nil
}

// Config is how a node is started.
type Config struct {
	Dir        string
	Own        bool // the node removes Dir when it ends
	Name       string
	Port       int
	Cluster    int // the port for the other nodes; 0 if there are none
	Routes     []int
	SyncAlways bool
	MaxPayload int32
	NoJS       bool
	MaxStore   int64
	Log        string // a file; "" is none
	Settings   string // in the syntax of the server's configuration files
	User       string // with the password "secret"; the user "system" is of the system account
}

// Start starts a server of its own process, which ends with the test.
func Start(tb testing.TB, c Config) *Node {
	tb.Helper()
	if c.Dir == "" {
		c.Dir = tb.TempDir()
	}
	n, err := Launch(c)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(n.Kill)
	return n
}

// Launch starts a server of its own process, which ends with this one, or when it is
// killed. Its folder stays.
func Launch(c Config) (*Node, error) {
	n := newNode(c)
	return n, n.Start()
}

// StartCluster starts three servers, each of which is a process. If the test fails, it
// shows the end of their logs.
func StartCluster(tb testing.TB, c Config) []*Node {
	tb.Helper()
	nodes, err := LaunchCluster(tb.TempDir(), c)
	tb.Cleanup(func() {
		for _, n := range nodes {
			if log, err := os.ReadFile(n.Log); tb.Failed() && err == nil {
				lines := strings.Split(string(log), "\n")
				tb.Logf("%s:\n%s", n.Log, strings.Join(lines[max(0, len(lines)-100):], "\n"))
			}
		}
	})
	for _, n := range nodes {
		tb.Cleanup(n.Kill)
	}
	if err != nil {
		tb.Fatal(err)
	}
	return nodes
}

// LaunchCluster is Launch for three servers, with their data in a folder.
func LaunchCluster(dir string, c Config) (nodes []*Node, err error) {
	var ports []int
	for range 3 {
		ports = append(ports, freePort())
	}
	for i, port := range ports {
		c := c
		c.Name, c.Cluster, c.Routes = fmt.Sprint("node", i), port, ports
		c.Dir, c.Log = filepath.Join(dir, c.Name), filepath.Join(dir, c.Name+".log")
		n, err := Launch(c)
		if nodes = append(nodes, n); err != nil {
			return nodes, err
		}
	}
	return nodes, nil
}

// URLs returns the URL of a cluster.
func URLs(nodes []*Node) string {
	var urls []string
	for _, n := range nodes {
		urls = append(urls, strings.TrimPrefix(n.URL(), "nats://"))
	}
	return "nats://" + strings.Join(urls, ",")
}

// A Node is a server in a process.
type Node struct {
	Config
	cmd   *exec.Cmd
	alive io.Closer
}

func newNode(c Config) *Node {
	if c.Port == 0 {
		c.Port = freePort()
	}
	if c.Name == "" {
		c.Name = fmt.Sprint("node", c.Port)
	}
	return &Node{Config: c}
}

// URL returns the URL of the node.
func (n *Node) URL() string {
	user := ""
	if n.User != "" {
		user = n.User + ":secret@"
	}
	return fmt.Sprintf("nats://%s127.0.0.1:%d", user, n.Port)
}

// Start starts the node, or starts it again after Kill. It returns when the node
// accepts clients.
func (n *Node) Start() error {
	config, err := json.Marshal(n.Config)
	if err != nil {
		return err
	}
	self, err := os.Executable()
	if err != nil {
		return err
	}
	n.cmd = exec.Command(self)
	n.cmd.Env = append(os.Environ(), envNode+"="+string(config))
	n.cmd.Stderr = os.Stderr
	if n.alive, err = n.cmd.StdinPipe(); err != nil {
		return err
	}
	out, err := n.cmd.StdoutPipe()
	if err == nil {
		err = n.cmd.Start()
	}
	if err != nil {
		return err
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil || line != "ready\n" {
		n.Kill()
		return fmt.Errorf("the NATS server did not start: %q, %v", line, err)
	}
	return nil
}

// Kill kills the node with SIGKILL.
func (n *Node) Kill() {
	if n.cmd != nil {
		_ = n.cmd.Process.Kill()
		_ = n.cmd.Wait() // it was killed
		n.alive.Close()
		n.cmd = nil
	}
}

func freePort() int {
	_, port, err := freeport.Address()
	if err != nil {
		panic(err)
	}
	n, err := strconv.Atoi(port)
	if err != nil {
		panic(err)
	}
	return n
}

// init makes the process a node if its parent wants one. The node ends with its parent,
// even by kill -9.
func init() {
	text := os.Getenv(envNode)
	if text == "" {
		return
	}
	var c Config
	if err := json.Unmarshal([]byte(text), &c); err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	s, err := server.NewServer(options(c))
	if err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	s.ConfigureLogger()
	go s.Start()
	if !s.ReadyForConnections(30 * time.Second) {
		fmt.Println("not ready")
		os.Exit(1)
	}
	if app, err := s.LookupAccount("APP"); err == nil && !c.NoJS {
		if err := app.EnableJetStream(nil, nil); err != nil {
			fmt.Println(err)
			os.Exit(1)
		}
	}
	fmt.Println("ready")
	_, _ = io.Copy(io.Discard, os.Stdin)
	if c.Own {
		_ = os.RemoveAll(c.Dir)
	}
	os.Exit(0)
}

func options(c Config) *server.Options {
	o := &server.Options{
		ServerName: c.Name, Host: "127.0.0.1", Port: c.Port, NoSigs: true, NoLog: c.Log == "", LogFile: c.Log,
		JetStream: !c.NoJS, StoreDir: c.Dir, SyncAlways: c.SyncAlways, MaxPayload: c.MaxPayload, JetStreamMaxStore: c.MaxStore,
	}
	if c.Settings != "" {
		if err := o.ProcessConfigString(c.Settings); err != nil {
			panic(err)
		}
	}
	if c.Cluster != 0 {
		o.Cluster = server.ClusterOpts{Name: "test", Host: "127.0.0.1", Port: c.Cluster}
		for _, port := range c.Routes {
			o.Routes = append(o.Routes, &url.URL{Scheme: "nats", Host: fmt.Sprintf("127.0.0.1:%d", port)})
		}
	}
	if c.User != "" {
		system, app := server.NewAccount("SYS"), server.NewAccount("APP")
		o.Accounts = []*server.Account{system, app}
		o.SystemAccount = "SYS"
		o.Users = []*server.User{{Username: "system", Password: "secret", Account: system}, {Username: c.User, Password: "secret", Account: app}}
	}
	return o
}

// Package node runs one server of a cluster that needs no database: a NATS server in
// this process, which replicates the store's stream to the others and syncs each write.
// It may import packages store and natsstore, and the NATS server.
package node

import (
	"context"
	"crypto/rand"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats-server/v2/server"
)

// Config is how a node is started.
type Config struct {
	Cluster string   // its name, which all nodes share
	Dir     string   // the node's folder, which it keeps
	Node    string   // the address at which the others reach this node, host:port; "" if only one of Join is of this machine
	Join    []string // the addresses of all nodes; this one's may be left out
	Secret  string   // that all nodes share
	TLS     *tls.Config
	Log     *slog.Logger
}

// ErrConfig is the error of a configuration that cannot work.
var ErrConfig = errors.New("the configuration of the cluster")

// Node is a running node.
type Node struct {
	config Config
	others []string
	server *server.Server
	lock   *os.File
}

// identity is what a folder says about its node. A node that comes back under another
// name would be a new one for the others, and its old self would count as missing for
// ever. Other processes of this machine reach the store through the node's port for
// clients; it keeps port and password too, so that they find it again.
type identity struct {
	Cluster  string `json:"cluster"`
	Node     string `json:"node"`
	Nodes    int    `json:"nodes"`
	Port     int    `json:"port"`
	Password string `json:"password"`
}

// url returns the URL for clients.
func (i *identity) url() string {
	u := url.URL{Scheme: "nats", Host: net.JoinHostPort("127.0.0.1", strconv.Itoa(i.Port)), User: url.UserPassword(clientUser, i.Password)}
	return u.String()
}

const (
	identityFile = "node.json"
	clientUser   = "perdure"
)

// Start starts a node. It returns when the node listens, whoever else is there.
func Start(c Config) (*Node, error) {
	if err := c.complete(); err != nil {
		return nil, err
	}
	if err := os.MkdirAll(c.Dir, 0o700); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrConfig, err)
	}
	n := &Node{config: c}
	var err error
	if n.lock, err = lockFolder(c.Dir); err != nil {
		return nil, err
	}
	if err := n.start(); err != nil {
		n.Stop()
		return nil, err
	}
	return n, nil
}

func (n *Node) start() error {
	c := n.config
	id, err := c.identify()
	if err != nil {
		return err
	}
	n.others = slices.DeleteFunc(slices.Clone(c.Join), func(a string) bool { return a == c.Node })
	host, port, err := splitAddress(c.Node)
	if err != nil {
		return err
	}
	o := &server.Options{
		ServerName: serverName(c.Node), NoSigs: true, DisableJetStreamBanner: true,
		Host: "127.0.0.1", Port: id.Port, Username: clientUser, Password: id.Password,
		JetStream: true, StoreDir: filepath.Join(c.Dir, "nats"), SyncAlways: true,
		Cluster: server.ClusterOpts{
			Name: c.Cluster, Host: host, Port: port, Advertise: c.Node,
			TLSConfig: c.TLS, TLSTimeout: 5, AuthTimeout: 5, ConnectRetries: 1 << 30,
			PingInterval: 2 * time.Second, MaxPingsOut: 2,
		},
	}
	if c.Secret != "" {
		o.Cluster.Username, o.Cluster.Password = "perdure", c.Secret
	}
	for _, address := range n.others {
		u := &url.URL{Scheme: "nats-route", Host: address}
		if c.Secret != "" {
			u.User = url.UserPassword("perdure", c.Secret)
		}
		o.Routes = append(o.Routes, u)
	}
	if n.server, err = server.NewServer(o); err != nil {
		return fmt.Errorf("%w: %w", ErrConfig, err)
	}
	n.server.SetLoggerV2(logger{c.Log}, false, false, false)
	n.server.Start()
	if !n.server.ReadyForConnections(10 * time.Second) {
		return fmt.Errorf("%w: the node cannot listen at %s", ErrConfig, c.Node)
	}
	running.Store(c.Dir, n)
	return nil
}

// Stop stops the node. Others go on without it, as long as more than half of them are
// there.
func (n *Node) Stop() {
	running.CompareAndDelete(n.config.Dir, n)
	if n.server != nil {
		n.server.Shutdown()
		n.server.WaitForShutdown()
	}
	if n.lock != nil {
		n.lock.Close()
	}
}

// URL returns the store's URL for this node's process and for others on this machine.
func (n *Node) URL() string { return Scheme + ":" + n.config.Dir }

// Missing returns the addresses of nodes that this one is not connected to.
func (n *Node) Missing() []string {
	here := map[string]bool{}
	if routes, err := n.server.Routez(nil); err == nil {
		for _, r := range routes.Routes {
			here[r.RemoteName] = true
		}
	}
	return slices.DeleteFunc(slices.Clone(n.others), func(a string) bool { return here[serverName(a)] })
}

// Watch logs who is missing, and when everybody is there, until ctx ends.
func (n *Node) Watch(ctx context.Context) {
	var last []string
	for first := true; ; first = false {
		if now := n.Missing(); first || !slices.Equal(now, last) {
			last = now
			if len(now) > 0 {
				n.config.Log.Warn("nodes of the cluster are missing", "missing", now, "here", len(n.others)+1-len(now), "of", len(n.others)+1)
			} else {
				n.config.Log.Info("all nodes of the cluster are here", "nodes", len(n.others)+1)
			}
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(time.Second):
		}
	}
}

// serverName returns the name of the node at an address. Others know it by its place in
// their list.
func serverName(address string) string { return address }

var clusterName = regexp.MustCompile(`^[a-zA-Z0-9_-]{1,48}$`)

// complete checks a configuration and fills in what follows from the rest.
func (c *Config) complete() error {
	if !clusterName.MatchString(c.Cluster) {
		return fmt.Errorf("%w: %q cannot be its name; use up to 48 letters, digits, dashes and underscores", ErrConfig, c.Cluster)
	}
	var own []string
	for _, a := range c.Join {
		host, _, err := splitAddress(a)
		if err != nil {
			return err
		}
		if ofThisMachine(host) {
			own = append(own, a)
		}
	}
	if c.Node == "" {
		if len(own) != 1 {
			return fmt.Errorf("%w: %d of the addresses to join are of this machine; say with --node which one is this node's", ErrConfig, len(own))
		}
		c.Node = own[0]
	}
	host, _, err := splitAddress(c.Node)
	if err != nil {
		return err
	}
	slices.Sort(c.Join)
	c.Join = slices.Compact(c.Join)
	if !slices.Contains(c.Join, c.Node) {
		c.Join = append(c.Join, c.Node)
	}
	if len(c.Join) != 3 && len(c.Join) != 5 {
		return fmt.Errorf("%w: it has %d nodes with this one; name three or five, of which one or two may fail", ErrConfig, len(c.Join))
	}
	if c.Secret == "" && c.TLS == nil && !(loopback(host) && !slices.ContainsFunc(c.Join, func(a string) bool { h, _, _ := splitAddress(a); return !loopback(h) })) {
		return fmt.Errorf("%w: other machines can reach it; give all nodes the same secret with --cluster-secret-file, or certificates with --cluster-cert, --cluster-key and --cluster-ca", ErrConfig)
	}
	if c.Secret != "" && len(c.Secret) < 16 {
		return fmt.Errorf("%w: its secret has %d bytes; use at least 16 that are random", ErrConfig, len(c.Secret))
	}
	if c.Dir, err = filepath.Abs(c.Dir); err != nil {
		return fmt.Errorf("%w: %w", ErrConfig, err)
	}
	return nil
}

// identify compares the configuration with what the folder says, and makes it say so
// the first time.
func (c *Config) identify() (*identity, error) {
	now := &identity{Cluster: c.Cluster, Node: c.Node, Nodes: len(c.Join), Password: rand.Text()}
	was, err := readIdentity(c.Dir)
	switch {
	case errors.Is(err, os.ErrNotExist):
	case err != nil:
		return nil, fmt.Errorf("%w: %w", ErrConfig, err)
	case was.Cluster != now.Cluster:
		return nil, fmt.Errorf("%w: the folder %s is of the cluster %s, not of %s", ErrConfig, c.Dir, was.Cluster, now.Cluster)
	case was.Node != now.Node:
		return nil, fmt.Errorf("%w: the folder %s is of the node %s, not of %s; a node keeps its address and its folder", ErrConfig, c.Dir, was.Node, now.Node)
	case was.Nodes != now.Nodes:
		return nil, fmt.Errorf("%w: it had %d nodes and has %d now, which cannot be changed yet", ErrConfig, was.Nodes, now.Nodes)
	default:
		now.Port, now.Password = was.Port, was.Password
	}
	l, err := net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(now.Port)))
	if err != nil && now.Port != 0 { // somebody else has taken it
		l, err = net.Listen("tcp", "127.0.0.1:0")
	}
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrConfig, err)
	}
	now.Port = l.Addr().(*net.TCPAddr).Port
	if err := l.Close(); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrConfig, err)
	}
	if was != nil && *was == *now {
		return now, nil
	}
	return now, writeFile(filepath.Join(c.Dir, identityFile), now)
}

func readIdentity(dir string) (*identity, error) {
	data, err := os.ReadFile(filepath.Join(dir, identityFile))
	if err != nil {
		return nil, err
	}
	i := &identity{}
	if err := json.Unmarshal(data, i); err != nil {
		return nil, fmt.Errorf("%s in %s: %w", identityFile, dir, err)
	}
	return i, nil
}

func splitAddress(a string) (host string, port int, err error) {
	host, text, err := net.SplitHostPort(a)
	if err == nil {
		port, err = strconv.Atoi(text)
	}
	if err != nil || host == "" || port <= 0 || port > 65535 {
		return "", 0, fmt.Errorf("%w: %q is not an address; write it like 10.0.0.1:7374", ErrConfig, a)
	}
	return host, port, nil
}

func loopback(host string) bool {
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}

// ofThisMachine reports whether a host is this machine, by its name or one of its
// addresses.
func ofThisMachine(host string) bool {
	if name, err := os.Hostname(); loopback(host) || err == nil && name == host {
		return true
	}
	ips, _ := net.LookupIP(host) // a host that is unknown yet is not this one
	addrs, _ := net.InterfaceAddrs()
	for _, a := range addrs {
		if n, ok := a.(*net.IPNet); ok && slices.ContainsFunc(ips, n.IP.Equal) {
			return true
		}
	}
	return false
}

// writeFile writes a file that only its owner can read, all or nothing.
func writeFile(name string, v any) error {
	data, err := json.Marshal(v)
	if err != nil {
		return err
	}
	temp := name + ".new"
	f, err := os.OpenFile(temp, os.O_CREATE|os.O_WRONLY|os.O_TRUNC, 0o600)
	if err != nil {
		return fmt.Errorf("%w: %w", ErrConfig, err)
	}
	_, err = f.Write(data)
	if err = errors.Join(err, f.Sync(), f.Close()); err == nil {
		err = os.Rename(temp, name)
	}
	if err != nil {
		return fmt.Errorf("%w: %w", ErrConfig, err)
	}
	return nil
}

// logger passes on what a server says, other than what Watch says better and what does
// not concern the one who reads it.
type logger struct{ log *slog.Logger }

func (l logger) Noticef(format string, v ...any) { l.log.Debug("nats: " + fmt.Sprintf(format, v...)) }
func (l logger) Warnf(format string, v ...any)   { l.tell(slog.LevelWarn, format, v...) }
func (l logger) Fatalf(format string, v ...any)  { l.tell(slog.LevelError, format, v...) }
func (l logger) Errorf(format string, v ...any)  { l.tell(slog.LevelError, format, v...) }
func (l logger) Debugf(string, ...any)           {}
func (l logger) Tracef(string, ...any)           {}

func (l logger) tell(level slog.Level, format string, v ...any) {
	text := fmt.Sprintf(format, v...)
	for _, known := range []string{"Plaintext passwords", "Error trying to connect to route", "Waiting for routing"} {
		if strings.HasPrefix(text, known) {
			level = slog.LevelDebug
		}
	}
	l.log.Log(context.Background(), level, "nats: "+text)
}

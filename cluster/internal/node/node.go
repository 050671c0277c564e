// Package node runs one server of a cluster that needs no database: a NATS server in
// this process, which replicates the store's stream to the others and syncs each write.
// It may import packages store and natsstore, and the NATS server.
package node

import (
	"cmp"
	"context"
	"crypto/rand"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
)

// Config is how a node is started.
type Config struct {
	Cluster string   // its name, which all nodes share
	Dir     string   // the node's folder, which it keeps
	Node    string   // the address at which the others reach this node, host:port; "" if only one of Join is of this machine
	Join    []string // the addresses of all nodes; this one's may be left out
	Secret  string   // that all nodes share
	TLS     *tls.Config
	MaxDisk int64 // most bytes of its data on the disk; 0 means what it has and three quarters of what is free
	Log     *slog.Logger
}

// ErrConfig is the error of a configuration that cannot work.
var ErrConfig = errors.New("the configuration of the cluster")

// Node is a running node.
type Node struct {
	config Config
	others []string
	server *server.Server
	system string // key of the system account
	logger *logger
	lock   *os.File
	own    *nats.Conn  // see tell
	asked  atomic.Bool // for its store
	filled atomic.Bool // see behind
}

// Start starts a node. It returns when the node listens, whoever else is there.
func Start(c Config) (*Node, error) {
	if err := c.complete(); err != nil {
		return nil, err
	}
	if err := os.MkdirAll(c.Dir, 0o700); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrConfig, err)
	}
	n := &Node{config: c, system: rand.Text(), logger: &logger{log: c.Log}}
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
	data := filepath.Join(c.Dir, "nats")
	guard := &guard{keys: map[string]string{clientUser: id.Key, systemUser: n.system}, system: func() *server.Account { return n.server.SystemAccount() }}
	o := &server.Options{
		ServerName: serverName(c.Node), NoSigs: true, DisableJetStreamBanner: true,
		Host: "127.0.0.1", Port: id.Port, CustomClientAuthentication: guard, AlwaysEnableNonce: true,
		JetStream: true, StoreDir: data, JetStreamMaxStore: cmp.Or(c.MaxDisk, diskLimit(data)), SyncAlways: true,
		Cluster: server.ClusterOpts{
			Name: c.Cluster, Host: host, Port: port, Advertise: c.Node,
			TLSConfig: c.TLS, TLSTimeout: 5, AuthTimeout: 5, ConnectRetries: 1 << 30,
			PingInterval: 2 * time.Second, MaxPingsOut: 2,
			NoAdvertise: true, // clients of this node cannot use the others' ports
		},
	}
	o.Cluster.Username, o.Cluster.Password = clientUser, c.pass()
	for _, address := range n.others {
		o.Routes = append(o.Routes, &url.URL{Scheme: "nats-route", Host: address, User: url.UserPassword(clientUser, c.pass())})
	}
	if n.server, err = server.NewServer(o); err != nil {
		return fmt.Errorf("%w: %w", ErrConfig, err)
	}
	n.server.SetLoggerV2(n.logger, false, false, false)
	n.server.Start()
	if !n.server.ReadyForConnections(10 * time.Second) {
		return fmt.Errorf("%w: the node cannot listen at %s", ErrConfig, c.Node)
	}
	if err := n.tell(id.Key); err != nil {
		return fmt.Errorf("%w: %w", ErrConfig, err)
	}
	running.Store(c.Dir, n)
	return nil
}

// Stop stops the node. Others go on without it, as long as more than half of them are
// there.
func (n *Node) Stop() {
	running.CompareAndDelete(n.config.Dir, n)
	if n.own != nil {
		n.own.Close() // or else it tries to connect again for ever
	}
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
			if r.NumSubs > 0 { // or else the other node has not let this one in yet
				here[r.RemoteName] = true
			}
		}
	}
	return slices.DeleteFunc(slices.Clone(n.others), func(a string) bool { return here[serverName(a)] })
}

// misses returns a *MissingError if nodes are missing.
func (n *Node) misses() error {
	gone := n.Missing()
	if len(gone) == 0 {
		return nil
	}
	return &MissingError{len(n.others) + 1, gone, n.logger.refuses(), n.filled.Load()}
}

// behind reports whether the node has not fetched yet what it missed while it was away, or
// all of it if its folder is new: the cluster cannot do without another node until it has.
func (n *Node) behind() bool {
	if !n.filled.Load() && n.holds() && n.server.Healthz(nil).Status == "ok" {
		n.filled.Store(true)
	}
	return !n.filled.Load()
}

// holds reports whether the node has a copy of the store, which a new cluster has not yet.
func (n *Node) holds() bool {
	js, err := n.server.Jsz(nil)
	return err == nil && js.Streams > 0
}

// nearlyAll is the part of its limit that a node has in use when it has no room: what
// comes next may be larger than the rest.
const nearlyAll = 0.9

// isFull reports whether the node has no room for the store.
func (n *Node) isFull() bool {
	if n.logger.isFull() {
		return true
	}
	js, err := n.server.Jsz(nil)
	return err == nil && js.Config.MaxStore > 0 && float64(js.Store) >= nearlyAll*float64(js.Config.MaxStore)
}

// Watch logs who is missing, and when everybody is there, until ctx ends. When everybody
// is there, it removes nodes that were replaced.
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
		if len(last) == 0 {
			n.logger.agree()
			n.tidy(ctx)
		}
		n.behind() // remember that it was not, also if nobody asks
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

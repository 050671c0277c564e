package node

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"log/slog"
	"math/big"
	"net"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/perdure/perdure/internal/freeport"
	"github.com/perdure/perdure/store"
)

// configs returns those of three nodes on this machine.
func configs(t *testing.T) (all []Config) {
	t.Helper()
	var join []string
	for range 3 {
		a, _ := freeport.For(t)
		join = append(join, a)
	}
	for _, a := range join {
		all = append(all, Config{Cluster: "test", Node: a, Join: join, Dir: t.TempDir(), Log: slog.New(slog.DiscardHandler)})
	}
	return all
}

func start(t *testing.T, c Config) *Node {
	t.Helper()
	n, err := Start(c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(n.Stop)
	return n
}

// await waits until a node misses this many.
func await(t *testing.T, n *Node, missing int) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for len(n.Missing()) != missing {
		select {
		case <-ctx.Done():
			t.Fatalf("missing are %v, not %d", n.Missing(), missing)
		case <-time.After(10 * time.Millisecond):
		}
	}
}

// TestStore opens the store of a cluster through each node.
func TestStore(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	var nodes []*Node
	for i, c := range configs(t) {
		nodes = append(nodes, start(t, c))
		if _, err := store.Open(ctx, nodes[0].URL()); i < 2 && err == nil {
			t.Fatalf("%d nodes of 3 have a store", i+1)
		}
	}
	for i, n := range nodes {
		s := openStore(t, n)
		if _, err := store.AppendOnce(ctx, s, "j", uint64(i), []byte("entry")); err != nil {
			t.Fatal(err)
		}
		if entries, err := store.ReadAll(ctx, s, "j", 0); err != nil || len(entries) != i+1 {
			t.Fatalf("node %d reads %d entries, %v", i, len(entries), err)
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	}
	s := openStore(t, nodes[0])
	await(t, nodes[0], 0)
	watch(t, nodes[0])
	for !nodes[0].filled.Load() { // nobody but Watch asks
		select {
		case <-ctx.Done():
			t.Fatal("the node does not notice that the cluster works")
		case <-time.After(10 * time.Millisecond):
		}
	}
	says, ok := store.As[interface{ Detail() string }](s)
	if !ok || says.Detail() != "" {
		t.Fatalf("while all nodes are here, the store says %v", says)
	}
	nodes[1].Stop()
	await(t, nodes[0], 1)
	if text := says.Detail(); !strings.Contains(text, "2 of 3") || !strings.Contains(text, nodes[1].config.Node) || !strings.Contains(text, "elected a leader") {
		t.Errorf("without %s the store says %q", nodes[1].config.Node, text)
	}
	for _, where := range []string{"this process", "another"} {
		if found, err := store.Warnings(ctx, s); err != nil || len(found) != 1 || found[0].Kind != store.WarnNode || !strings.Contains(found[0].Detail, "node "+nodes[1].config.Node+" is missing: 2 of 3") {
			t.Errorf("without %s the store warns in %s of %+v, %v", nodes[1].config.Node, where, found, err)
		}
		running.Delete(nodes[0].config.Dir) // for another process the node is not in this one
	}
	nodes[2].Stop()
	await(t, nodes[0], 2)
	if _, err := store.Open(ctx, nodes[0].URL()); !errors.Is(err, store.ErrUnavailable) || !strings.Contains(err.Error(), nodes[2].config.Node) || !strings.Contains(err.Error(), "needs 2") {
		t.Errorf("another process cannot open it: %v", err)
	}
	if _, err := store.Open(ctx, nodes[1].URL()); !errors.Is(err, store.ErrUnavailable) || !strings.Contains(err.Error(), "no node runs") {
		t.Errorf("a store whose node is stopped: %v", err)
	}
}

// TestSecret keeps a node with another secret out.
func TestSecret(t *testing.T) {
	all := configs(t)
	for i := range all {
		all[i].Secret = "a secret of some length"
	}
	all[2].Secret = "another one of that length"
	first, second, third := start(t, all[0]), start(t, all[1]), start(t, all[2])
	await(t, first, 1)
	await(t, second, 1)
	if missing := third.Missing(); len(missing) != 2 {
		t.Errorf("a node with another secret misses only %v", missing)
	}
}

// TestCertificates keeps nodes without a certificate of the authority out.
func TestCertificates(t *testing.T) {
	good, bad := authority(t), authority(t)
	all := configs(t)
	all[0].TLS, all[1].TLS, all[2].TLS = good(), good(), bad()
	first, second, third := start(t, all[0]), start(t, all[1]), start(t, all[2])
	await(t, first, 1)
	await(t, second, 1)
	if missing := third.Missing(); len(missing) != 2 {
		t.Errorf("a node of another authority misses only %v", missing)
	}
}

// authority returns what issues the settings of nodes.
func authority(t *testing.T) func() *tls.Config {
	t.Helper()
	template := func(ca bool) *x509.Certificate {
		return &x509.Certificate{SerialNumber: big.NewInt(time.Now().UnixNano()), Subject: pkix.Name{CommonName: "node"}, NotAfter: time.Now().Add(time.Hour),
			IsCA: ca, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
			ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth}}
	}
	key := newKey(t)
	der, err := x509.CreateCertificate(rand.Reader, template(true), template(true), key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	ca, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	roots := x509.NewCertPool()
	roots.AddCert(ca)
	return func() *tls.Config {
		own := newKey(t)
		der, err := x509.CreateCertificate(rand.Reader, template(false), ca, own.Public(), key)
		if err != nil {
			t.Fatal(err)
		}
		return &tls.Config{Certificates: []tls.Certificate{{Certificate: [][]byte{der}, PrivateKey: own}}, RootCAs: roots, ClientCAs: roots, ClientAuth: tls.RequireAndVerifyClientCert}
	}
}

func newKey(t *testing.T) *ecdsa.PrivateKey {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

// TestConfigs refuses what cannot work.
func TestConfigs(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*Config)
		want   string
	}{
		"no name":            {func(c *Config) { c.Cluster = "" }, "its name"},
		"a name with a dot":  {func(c *Config) { c.Cluster = "a.b" }, "its name"},
		"two nodes":          {func(c *Config) { c.Join = c.Join[:2] }, "name three or five"},
		"not in the list":    {func(c *Config) { c.Node = "127.0.0.1:1" }, "is not among the 3 addresses"},
		"no port":            {func(c *Config) { c.Join = []string{"127.0.0.1"} }, "is not an address"},
		"no host":            {func(c *Config) { c.Node = ":7374" }, "is not an address"},
		"several here":       {func(c *Config) { c.Node = "" }, "--node"},
		"no secret":          {func(c *Config) { c.Join = []string{c.Node, "192.0.2.1:7374", "192.0.2.2:7374"} }, "--cluster-secret-file"},
		"open to all":        {func(c *Config) { c.Node = "0.0.0.0:7374"; c.Join = c.Join[:2] }, "--cluster-secret-file"},
		"a short secret":     {func(c *Config) { c.Secret = "short" }, "at least 16"},
		"the folder is none": {func(c *Config) { c.Dir = os.DevNull + "/x" }, "not a directory"},
	} {
		t.Run(name, func(t *testing.T) {
			config := configs(t)[0]
			c.change(&config)
			n, err := Start(config)
			if err == nil {
				n.Stop()
				t.Fatal("it started")
			}
			if !strings.Contains(err.Error(), c.want) {
				t.Errorf("%v; it should say %q", err, c.want)
			}
		})
	}
}

// TestFolder keeps a node in its folder, under its name, and alone.
func TestFolder(t *testing.T) {
	all := configs(t)
	n := start(t, all[0])
	if _, err := Start(all[0]); err == nil || !strings.Contains(err.Error(), "another process uses") {
		t.Errorf("a second node in the folder: %v", err)
	}
	n.Stop()
	for want, change := range map[string]func(*Config){
		"is of the cluster":  func(c *Config) { c.Cluster = "other" },
		"is of the node":     func(c *Config) { c.Node = c.Join[1] },
		"it had 3 nodes and": func(c *Config) { c.Join = append(c.Join, "127.0.0.1:1", "127.0.0.1:2") },
	} {
		config := all[0]
		change(&config)
		if _, err := Start(config); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v; it should say %q", err, want)
		}
	}
	if _, err := store.Open(t.Context(), Scheme+":"+t.TempDir()); err == nil || !strings.Contains(err.Error(), "not the folder of a node") {
		t.Errorf("a store in a folder without a node: %v", err)
	}
}

// TestDisk gives a node the limit that it was told, and otherwise more than it has.
func TestDisk(t *testing.T) {
	c := configs(t)[0]
	c.MaxDisk = 1 << 30
	n := start(t, c)
	if got := n.server.JetStreamConfig().MaxStore; got != c.MaxDisk {
		t.Errorf("the limit is %d, not %d", got, c.MaxDisk)
	}
	n.Stop()
	const has = 1 << 40
	f, err := os.Create(c.Dir + "/nats/sparse")
	if err == nil {
		err = f.Truncate(has)
		f.Close()
	}
	if err != nil {
		t.Fatal(err)
	}
	c.MaxDisk = 0
	if got := start(t, c).server.JetStreamConfig().MaxStore; freeDisk(c.Dir) > 0 && got < has {
		t.Errorf("a node with %d bytes may have %d after its restart", int64(has), got)
	}
}

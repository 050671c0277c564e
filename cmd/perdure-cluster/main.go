// Command perdure-cluster is the stock binary with a NATS server inside: three copies of
// it on three machines are a highly available Perdure without a database.
//
//	perdure-cluster serve --cluster agents --join 10.0.0.1:7374,10.0.0.2:7374,10.0.0.3:7374 --dir /var/lib/perdure --cluster-secret-file secret
//
// All other commands work on a node's store by its folder, --store cluster:DIR, on the
// machine of the node.
package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/perdure/perdure/cli"
	"github.com/perdure/perdure/cmd/perdure-cluster/internal/node"
	"github.com/perdure/perdure/examples/procurement"
	"github.com/perdure/perdure/examples/research"
	"github.com/perdure/perdure/examples/story"
	_ "github.com/perdure/perdure/store/pgstore" // postgres: URLs, to migrate from and to
	"github.com/spf13/pflag"
)

func main() {
	pace, err := time.ParseDuration(os.Getenv("PERDURE_PACE"))
	if err != nil {
		pace = 80 * time.Millisecond
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // the second interrupt ends it at once
	os.Exit(cli.Run(ctx, cli.Options{Engine: engine, Example: research.Question},
		research.Flow(research.Options{Pace: pace}),
		procurement.Flow(procurement.Options{Pace: pace}),
		story.Flow(story.Options{Pace: pace}),
	))
}

// engine adds the flags of a node to serve.
func engine(f *pflag.FlagSet) func(context.Context, *slog.Logger) (string, func(), error) {
	var c node.Config
	var secret, cert, key, ca string
	f.StringVar(&c.Cluster, "cluster", "", "be a node of the cluster with this name, instead of using --store")
	f.StringSliceVar(&c.Join, "join", nil, "addresses of all nodes of the cluster, three or five, such as 10.0.0.1:7374,10.0.0.2:7374,10.0.0.3:7374")
	f.StringVar(&c.Node, "node", "", "this node's address among them; needed if more than one is of this machine")
	f.StringVar(&c.Dir, "dir", "perdure-cluster", "this node's folder, which it keeps")
	f.StringVar(&secret, "cluster-secret-file", "", "file with the secret that all nodes share")
	f.StringVar(&cert, "cluster-cert", "", "PEM file with this node's certificate for the other nodes, both as a server and as a client")
	f.StringVar(&key, "cluster-key", "", "PEM file with its key")
	f.StringVar(&ca, "cluster-ca", "", "PEM file with the authority that issued the certificates of all nodes")
	return func(ctx context.Context, log *slog.Logger) (string, func(), error) {
		if c.Cluster == "" {
			for _, name := range []string{"join", "node", "dir", "cluster-secret-file", "cluster-cert", "cluster-key", "cluster-ca"} {
				if f.Changed(name) {
					return "", nil, fmt.Errorf("--%s is for a node of a cluster: name it with --cluster", name)
				}
			}
			return "", func() {}, nil
		}
		if f.Changed("store") {
			return "", nil, errors.New("a node has its own store: leave --store out")
		}
		if secret != "" {
			data, err := os.ReadFile(secret)
			if err != nil {
				return "", nil, err
			}
			if c.Secret = strings.TrimSpace(string(data)); c.Secret == "" {
				return "", nil, fmt.Errorf("%s is empty", secret)
			}
		}
		var err error
		if c.TLS, err = mutual(cert, key, ca); err != nil {
			return "", nil, err
		}
		c.Log = log
		n, err := node.Start(c)
		if err != nil {
			return "", nil, err
		}
		watching, end := context.WithCancel(ctx)
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			n.Watch(watching)
		}()
		return n.URL(), func() { end(); <-ended; n.Stop() }, nil
	}
}

// mutual returns the settings by which nodes show each other certificates of one
// authority, nil if there are none.
func mutual(cert, key, ca string) (*tls.Config, error) {
	if cert == "" && key == "" && ca == "" {
		return nil, nil
	}
	if cert == "" || key == "" || ca == "" {
		return nil, errors.New("--cluster-cert, --cluster-key and --cluster-ca belong together")
	}
	pair, err := tls.LoadX509KeyPair(cert, key)
	if err != nil {
		return nil, err
	}
	data, err := os.ReadFile(ca)
	if err != nil {
		return nil, err
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(data) {
		return nil, fmt.Errorf("%s holds no certificate", ca)
	}
	return &tls.Config{Certificates: []tls.Certificate{pair}, RootCAs: roots, ClientCAs: roots, ClientAuth: tls.RequireAndVerifyClientCert, MinVersion: tls.VersionTLS13}, nil
}

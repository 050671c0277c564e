package cluster

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"os"
	"os/signal"
	"runtime"
	"strings"
	"syscall"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/cli"
	"github.com/perdure/perdure/cluster/internal/node"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// Main runs the command line of a program with flows, and exits, like [cli.Main].
func Main(flows ...perdure.Flow) {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop)
	os.Exit(Run(ctx, cli.Options{}, flows...))
}

// Run runs one command of a program with flows until it is done or the context ends,
// and returns the exit code, like [cli.Run]. It sets o.Engine and adds to o.Commands.
func Run(ctx context.Context, o cli.Options, flows ...perdure.Flow) int {
	o.Engine = engine
	o.Commands = append([]*cobra.Command{nodeCommand(o.Runtime.Logger)}, o.Commands...)
	return cli.Run(ctx, o, flows...)
}

// nodeCommand returns the command that runs a node and serves nothing.
func nodeCommand(log *slog.Logger) *cobra.Command {
	var start func(context.Context, *slog.Logger) (string, func(), error)
	c := &cobra.Command{
		Use:   "node",
		Short: "run a node of a cluster that serves nothing",
		Long: `Runs a node of a cluster that keeps its part of the store, and serves and executes
nothing. A new cluster of such nodes is empty and not in use: migrate into it, and then
start the nodes with serve and the same flags.`,
		Example: `  perdure-cluster node --cluster agents --join 10.0.0.1:7374,10.0.0.2:7374,10.0.0.3:7374 --dir /var/lib/perdure --cluster-secret-file secret
  perdure-cluster migrate --from sqlite:perdure.db --to cluster:/var/lib/perdure`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			if log == nil {
				log = slog.New(slog.NewTextHandler(c.ErrOrStderr(), nil))
			}
			url, stop, err := start(c.Context(), log)
			if err != nil {
				return err
			}
			defer stop()
			if url == "" {
				return errors.New("name the cluster with --cluster")
			}
			log.Info("the node keeps its part of the store and serves nothing", "store", url)
			<-c.Context().Done()
			return nil
		},
	}
	start = engine(c.Flags())
	return c
}

// engine adds the flags of a node to a command, and returns what starts it.
func engine(f *pflag.FlagSet) func(context.Context, *slog.Logger) (string, func(), error) {
	var c node.Config
	var secret, cert, key, ca string
	var disk int64
	f.StringVar(&c.Cluster, "cluster", "", "be a node of the cluster with this name, instead of using --store")
	f.StringSliceVar(&c.Join, "join", nil, "addresses of all nodes of the cluster, three or five, such as 10.0.0.1:7374,10.0.0.2:7374,10.0.0.3:7374")
	f.StringVar(&c.Node, "node", "", "this node's address among them; required if several of them belong to this machine")
	f.StringVar(&c.Dir, "dir", "perdure-cluster", "this node's folder; keep it across restarts")
	f.Int64Var(&disk, "max-disk", 0, "how many MiB this node may keep on its disk; 0 means what it already uses when it starts plus three quarters of the free space")
	f.StringVar(&secret, "cluster-secret-file", "", "file with the secret that all nodes share")
	f.StringVar(&cert, "cluster-cert", "", "PEM file with this node's certificate for the other nodes, both as a server and as a client")
	f.StringVar(&key, "cluster-key", "", "PEM file with its key")
	f.StringVar(&ca, "cluster-ca", "", "PEM file with the authority that issued the certificates of all nodes")
	return func(ctx context.Context, log *slog.Logger) (string, func(), error) {
		if c.Cluster == "" {
			for _, name := range []string{"join", "node", "dir", "max-disk", "cluster-secret-file", "cluster-cert", "cluster-key", "cluster-ca"} {
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
			var err error
			if c.Secret, err = readSecret(secret); err != nil {
				return "", nil, err
			}
		}
		var err error
		if c.TLS, err = mutual(cert, key, ca); err != nil {
			return "", nil, err
		}
		if disk < 0 || disk > math.MaxInt64>>20 {
			return "", nil, fmt.Errorf("--max-disk is a number of MiB, not %d", disk)
		}
		c.Log, c.MaxDisk = log, disk<<20
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

// readSecret reads a secret that others cannot read.
func readSecret(file string) (string, error) {
	data, err := os.ReadFile(file)
	if err != nil {
		return "", err
	}
	info, err := os.Stat(file)
	if err != nil {
		return "", err
	}
	if mode := info.Mode().Perm(); runtime.GOOS != "windows" && mode&0o007 != 0 {
		return "", fmt.Errorf("%s holds a secret, and everybody on this machine can use it (mode %04o): use chmod 600", file, mode)
	}
	secret := strings.TrimSpace(string(data))
	if secret == "" {
		return "", fmt.Errorf("%s is empty", file)
	}
	return secret, nil
}

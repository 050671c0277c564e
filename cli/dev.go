package cli

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/server"
	"github.com/spf13/cobra"
)

func init() { register(devCommand) }

// devCommand makes the command that serves everything on this machine.
func devCommand(a *app) *cobra.Command {
	var address string
	c := &cobra.Command{
		Use:   "dev",
		Short: "serve the API and execute runs on this machine, without any set-up",
		Long: `Serves the API and executes runs, in one process, for this machine only and
without tokens. Everything is kept in ./.perdure, so stop it, or kill it, and
start it again: runs go on where they were.`,
		Example: "  perdure dev\n  perdure dev --addr 127.0.0.1:0 --store sqlite:other.db",
		Args:    cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			if c.Flags().Changed("server") {
				return usage(errors.New("dev is a server itself: call it without --server"))
			}
			if err := server.CheckListen(address, false, false); err != nil {
				return usage(fmt.Errorf("dev serves this machine only: %w; perdure serve has tokens", err))
			}
			return a.dev(c.Context(), address)
		},
	}
	c.Flags().StringVar(&address, "addr", devAddress, "address to listen on, of this machine only")
	return c
}

// dev serves until the context ends.
func (a *app) dev(ctx context.Context, address string) error {
	l, err := listen(ctx, address)
	if err != nil {
		if there, dialErr := a.dial("http://" + address); dialErr == nil && code(err) == exitUnavailable && there.answers(ctx) {
			err = &exitError{exitUnavailable, fmt.Errorf("a perdure server is at %s already: use it, or start another one with --addr 127.0.0.1:0", address)}
		}
		return err
	}
	defer l.Close()
	url := a.store
	if url == "" {
		if url, err = devStore(); err != nil {
			return err
		}
	}
	log := a.logger()
	rt, closeStore, err := a.runtime(ctx, url, perdure.Options{Logger: log, Observer: transitions{log}})
	if err != nil {
		return err
	}
	defer closeStore()
	a.welcome(l.Addr(), url)
	s := &site{rt: rt, api: server.New(rt, server.Options{Logger: log, Version: version()}), log: log, worker: true}
	if err := s.run(ctx, l); err != nil {
		return err
	}
	a.printf("Stopped. What was not done goes on when it starts again.\n")
	return nil
}

// devStore makes the folder of dev, which is no business of version control.
func devStore() (string, error) {
	if err := os.MkdirAll(devFolder, 0o700); err != nil {
		return "", fmt.Errorf("%w; dev keeps everything in ./%s: call it in a folder where you may write, or name a --store", err, devFolder)
	}
	ignore := filepath.Join(devFolder, ".gitignore")
	if _, err := os.Stat(ignore); err != nil {
		if err := os.WriteFile(ignore, []byte("*\n"), 0o600); err != nil {
			return "", err
		}
	}
	return "sqlite:" + filepath.ToSlash(filepath.Join(devFolder, devFile)), nil
}

// welcome says what is served, and what to try.
func (a *app) welcome(at net.Addr, url string) {
	flows := make([]string, len(a.flows))
	for i, f := range a.flows {
		flows[i] = f.Name()
	}
	address := "http://" + at.String()
	a.printf("%s\n", a.style(bold, "Perdure serves "+address+", for this machine only"))
	a.printf("  store  %s\n  flows  %s\n  API    %s/openapi.json\n", url, strings.Join(flows, ", "), address)
	if len(flows) > 0 {
		to := ""
		if at.String() != devAddress {
			to = " --server " + address
		}
		flow, input := flows[0], "Hello"
		if flow == demoFlow {
			input = demoQuestion
		}
		name := programName()
		a.printf("\n%s\n", a.style(bold, "Try, in another terminal"))
		a.printf("  %s run %s %q%s\n", name, flow, input, to)
		a.printf("  %s threads%s\n", name, to)
		a.printf("  curl --json '{\"flow\": %q, \"input\": %q}' %s/v1/runs\n", flow, input, address)
	}
	a.printf("\nCtrl-C stops it.\n")
}

//go:build unix

package main

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"
)

// command runs a command of this program.
func command(ctx context.Context, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, os.Args[0], args...)
	cmd.Env = append(os.Environ(), beMain+"=1", "PERDURE_PACE=1ms")
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// TestMigrateIntoACluster moves a store into a new cluster, whose nodes serve nothing
// meanwhile.
func TestMigrateIntoACluster(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	from := "sqlite:" + filepath.Join(t.TempDir(), "perdure.db")
	if out, err := command(ctx, "run", "story", "a fox", "--thread", "tale", "--store", from); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	all := machines(t)
	for _, m := range all {
		serve := m.args
		m.args = append([]string{"node"}, serve[1:slices.Index(serve, "--addr")]...)
		m.start(t)
		m.args = serve
	}
	to := "cluster:" + all[0].args[slices.Index(all[0].args, "--dir")+1]
	for {
		out, err := command(ctx, "migrate", "--from", from, "--to", to)
		if err == nil {
			break
		}
		exited, ok := errors.AsType[*exec.ExitError](err)
		if starting := ok && (exited.ExitCode() == 7 || strings.Contains(out, "is not the folder of a node")); !starting || ctx.Err() != nil {
			t.Fatalf("%v\n%s", err, out)
		}
	}
	for _, m := range all {
		if err := m.cmd.Process.Signal(syscall.SIGTERM); err != nil {
			t.Fatal(err)
		}
		if err := m.cmd.Wait(); err != nil {
			t.Errorf("node %s: %v", m.node, err)
		}
		m.cmd = nil
		m.start(t)
	}
	all[2].ready(t, 200)
	all[2].ended(t, "tale")
}

//go:build unix

package demo

import (
	"os"
	"path/filepath"
	"testing"
	"time"
)

// TestAWorkerThatTellsMoreThanIsHeard ends when it is killed or stopped, although
// nobody receives what it tells: its pipe holds deltas, and its reader has one in
// hand.
func TestAWorkerThatTellsMoreThanIsHeard(t *testing.T) {
	exe := filepath.Join(t.TempDir(), "worker")
	if err := os.WriteFile(exe, []byte("#!/bin/sh\nyes '{\"after\":1,\"delta\":{}}' | head -n 1000\nexec cat\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	before := executable
	executable = func() (string, error) { return exe, nil }
	defer func() { executable = before }()
	for name, end := range map[string]func(*workerProcess) error{
		"kill": (*workerProcess).kill,
		"stop": func(c *workerProcess) error { return c.stop(t.Context()) },
	} {
		t.Run(name, func(t *testing.T) {
			c, err := startWorkerProcess(nil, nil)
			if err != nil {
				t.Fatal(err)
			}
			<-c.told // and the next one is on its way
			ended := make(chan error, 1)
			go func() { ended <- end(c) }()
			select {
			case err := <-ended:
				if err != nil {
					t.Error(err)
				}
			case <-time.After(time.Minute):
				t.Fatal("it does not end")
			}
		})
	}
}

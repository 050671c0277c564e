//go:build unix

package main

import (
	"context"
	"fmt"
	"os"
	"testing"
	"time"
)

// TestAWipedNodeIsFilled: once a node whose folder was lost says that it is ready, the
// cluster goes on without either of the others, and has all that was acknowledged.
func TestAWipedNodeIsFilled(t *testing.T) {
	all := machines(t)
	for _, m := range all {
		m.start(t)
	}
	for _, m := range all {
		m.ready(t, 200)
	}
	n := 0
	begin := func(m *machine) {
		t.Helper()
		m.begins(t, fmt.Sprint("t", n))
		n++
	}
	for range 20 {
		begin(all[0])
	}
	victims := []int{0, 2}
	if testing.Short() {
		victims = victims[:1]
	}
	for _, victim := range victims {
		all[1].kill()
		all[1].wipe(t)
		all[1].start(t)
		all[1].ready(t, 200)
		at := time.Now()
		all[victim].kill()
		for range 5 {
			begin(all[2-victim])
		}
		t.Logf("without node %d the others began runs after %v", victim, time.Since(at))
		all[victim].start(t)
		all[victim].ready(t, 200)
	}
	all[1].has(t, n)
}

// TestAWipedNodeIsNoWitness: two nodes of which one was wiped do not have all that was
// acknowledged, and say which node has it.
func TestAWipedNodeIsNoWitness(t *testing.T) {
	all := machines(t)
	for _, m := range all {
		m.start(t)
	}
	for _, m := range all {
		m.ready(t, 200)
	}
	all[2].kill()
	for i := range 10 {
		all[0].begins(t, fmt.Sprint("t", i))
	}
	all[0].kill()
	all[1].kill()
	all[1].wipe(t)
	all[1].start(t)
	all[2].start(t)
	told := []string{"missing: " + all[0].node, "lost its folder, it needs all 3"}
	for deadline := time.Now().Add(12 * time.Second); time.Now().Before(deadline); time.Sleep(time.Second) {
		for _, m := range all[1:] { // by and by for other reasons
			m.ready(t, 503, told...)
		}
	}
	all[0].start(t)
	for _, m := range all {
		m.ready(t, 200)
		m.has(t, 10)
	}
}

// begins starts a run, and tries again until that is acknowledged.
func (m *machine) begins(t *testing.T, id string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for {
		ok, said := m.begin(ctx, id)
		if ok {
			return
		}
		select {
		case <-ctx.Done():
			t.Fatalf("the start of %s was not acknowledged: %s", id, said)
		case <-time.After(100 * time.Millisecond):
		}
	}
}

// wipe removes the folder of a node that does not run.
func (m *machine) wipe(t *testing.T) {
	t.Helper()
	if err := os.RemoveAll(m.args[8]); err != nil {
		t.Fatal(err)
	}
}

// has expects the threads t0 to t(n-1).
func (m *machine) has(t *testing.T, n int) {
	t.Helper()
	for i := range n {
		if status, body, err := call(t.Context(), "GET", fmt.Sprint(m.api, "/v1/threads/t", i), ""); status != 200 {
			t.Errorf("thread t%d is not there: %d %s %v", i, status, body, err)
		}
	}
}

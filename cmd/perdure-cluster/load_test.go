//go:build unix

package main

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/api"
)

// load is clients that start runs on all nodes.
type load struct {
	all     []*machine
	stop    context.CancelFunc
	clients sync.WaitGroup
	shots   map[string]time.Time // when workers were killed, by their ids

	mu           sync.Mutex
	acknowledged []string
	refused      string // why, the last time
}

// newLoad starts clients. Few of them take their time, too.
func newLoad(t *testing.T, all []*machine, clients int) *load {
	l := &load{all: all, shots: map[string]time.Time{}}
	var ctx context.Context
	ctx, l.stop = context.WithCancel(t.Context())
	t.Cleanup(func() { l.stop(); l.clients.Wait() })
	pause := 400 * time.Millisecond / time.Duration(clients)
	for c := range clients {
		l.clients.Go(func() {
			for i := 0; ctx.Err() == nil; i++ {
				id := fmt.Sprintf("t-%d-%d", c, i)
				bounded, cancel := context.WithTimeout(ctx, time.Minute)
				ok, said := all[(c+i)%len(all)].begin(bounded, id)
				cancel()
				l.mu.Lock()
				if ok {
					l.acknowledged = append(l.acknowledged, id)
				} else {
					l.refused = said
				}
				l.mu.Unlock()
				select {
				case <-ctx.Done():
				case <-time.After(pause):
				}
			}
		})
	}
	return l
}

// count returns how many starts were acknowledged, and why the last other one was not.
func (l *load) count() (int, string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.acknowledged), l.refused
}

// more waits until more starts are acknowledged.
func (l *load) more(t *testing.T, why string) {
	t.Helper()
	began := time.Now()
	count, _ := l.count()
	l.reach(t, count+5)
	t.Logf("%s: acknowledged again after %v", why, time.Since(began).Round(time.Millisecond))
}

// reach waits until so many starts are acknowledged.
func (l *load) reach(t *testing.T, want int) {
	t.Helper()
	for last, since := -1, time.Now(); ; time.Sleep(10 * time.Millisecond) {
		count, refused := l.count()
		if count >= want {
			return
		}
		if count > last {
			last, since = count, time.Now()
		}
		if time.Since(since) > 3*time.Minute {
			t.Fatalf("nothing is acknowledged after the first %d: %s", count, refused)
		}
	}
}

// kill kills a node, and remembers which workers died with it.
func (l *load) kill(t *testing.T, i int) {
	t.Helper()
	m := l.all[i]
	var list api.WorkerList
	l.get(t, "/v1/workers", &list, func() bool { return true })
	at := time.Now()
	for _, w := range list.Workers {
		if w.PID == m.cmd.Process.Pid {
			l.shots[w.ID] = at
		}
	}
	m.kill()
}

// get asks one node after the other until one returns what is wanted.
func (l *load) get(t *testing.T, path string, into any, done func() bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	for i := 0; ; i++ {
		status, body, err := call(ctx, "GET", l.all[i%len(l.all)].api+path, "")
		if status == 200 && json.Unmarshal([]byte(body), into) == nil && done() {
			return
		}
		select {
		case <-ctx.Done():
			t.Fatalf("%s is not as expected: %d %s %v", path, status, body, err)
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// ended waits until the run of a thread has ended, and returns all events.
func (l *load) ended(t *testing.T, id string) []perdure.Event {
	t.Helper()
	var page api.EventPage
	l.get(t, "/v1/threads/"+id+"/events?limit=1000", &page, func() bool {
		return len(page.Events) > 0 && page.Events[len(page.Events)-1].Kind == "ended"
	})
	if last := page.Events[len(page.Events)-1]; last.Status != perdure.Succeeded {
		t.Errorf("%s is %s: %s", id, last.Status, last.Error)
	}
	return page.Events
}

// ended is that of a load, by one node.
func (m *machine) ended(t *testing.T, id string) {
	t.Helper()
	(&load{all: []*machine{m}}).ended(t, id)
}

// check ends the load, and waits until all that was acknowledged has ended. Each thread
// has one end, and each of its steps once.
func (l *load) check(t *testing.T) {
	t.Helper()
	l.stop()
	l.clients.Wait()
	var takeovers []time.Duration
	for _, id := range l.acknowledged {
		recorded, holder := map[string]int{}, ""
		for i, e := range l.ended(t, id) {
			if e.Seq != uint64(i+1) {
				t.Errorf("event %d of %s has the sequence %d", i+1, id, e.Seq)
			}
			shot, killed := l.shots[holder]
			switch e.Kind {
			case "claimed":
				if took := e.Time.Sub(shot); killed && took > 0 {
					takeovers = append(takeovers, took)
				}
				holder = e.Worker
			case "suspended", "released", "blocked":
				holder = ""
			case "step", "ended":
				recorded[e.Kind+e.Path]++
			}
		}
		for what, times := range recorded {
			if times != 1 {
				t.Errorf("%s of %s is recorded %d times", what, id, times)
			}
		}
	}
	said := "there were no takeovers"
	if slices.Sort(takeovers); len(takeovers) > 0 {
		at := func(p int) time.Duration {
			return takeovers[min(len(takeovers)-1, len(takeovers)*p/100)].Round(time.Millisecond)
		}
		said = fmt.Sprintf("takeovers took %v (p50), %v (p99), %v (max of %d)", at(50), at(99), at(100), len(takeovers))
	}
	t.Logf("%d runs were acknowledged, and all of them ended; %s", len(l.acknowledged), said)
}

//go:build unix

package cluster_test

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"
)

type connection = pgx.Conn

// sql runs a function on a connection past all proxies.
func (p *place) sql(ctx context.Context, do func(*connection) error) error {
	c, err := pgx.Connect(ctx, p.pg.URL)
	if err != nil {
		return err
	}
	defer c.Close(context.WithoutCancel(ctx))
	return do(c)
}

// each calls a function for each row of a query.
func each(ctx context.Context, c *connection, query string, row func(scan func(...any) error) error) error {
	rows, err := c.Query(ctx, query)
	if err != nil {
		return err
	}
	defer rows.Close()
	for rows.Next() {
		if err := row(rows.Scan); err != nil {
			return err
		}
	}
	return rows.Err()
}

// entry is a row of the view history.
type entry struct {
	seq  int64
	kind string
	path string
	time time.Time
	body struct {
		ID, Flow, Worker, Status, Child string
		Res                             []json.RawMessage
		Answer                          *struct{ Value []int }
	}
}

// group is how the path of an entry tells that a part is the branch of a group.
var group = regexp.MustCompile(`\d+\|`)

// histories reads all threads as the view shows them.
func (p *place) histories() map[string][]entry {
	all := map[string][]entry{}
	err := p.sql(p.Context(), func(c *connection) error {
		return each(p.Context(), c, "SELECT coalesce(thread, ''), seq, kind, coalesce(path, ''), time, coalesce(body, '{}') FROM perdure.history ORDER BY journal, seq", func(scan func(...any) error) error {
			var thread, path, body string
			var e entry
			if err := scan(&thread, &e.seq, &e.kind, &path, &e.time, &body); err != nil {
				return err
			}
			e.path = group.ReplaceAllString(path, "")
			all[thread] = append(all[thread], e)
			return json.Unmarshal([]byte(body), &all[thread][len(all[thread])-1].body)
		})
	})
	if err != nil {
		p.Fatal(err)
	}
	return all
}

// of returns the entries of a kind.
func of(entries []entry, kind string) (found []entry) {
	for _, e := range entries {
		if e.kind == kind {
			found = append(found, e)
		}
	}
	return found
}

// check looks at everything that is left, and returns it.
func (c *clients) check() map[string][]entry {
	all := c.histories()
	if len(all) != 2*len(c.inputs) {
		c.Errorf("%d orders have %d threads, want as many children", len(c.inputs), len(all))
	}
	for _, in := range c.inputs {
		entries := all[in.Name]
		var got output
		c.one(in.Name, entries, append(slices.Clone(plainSteps), onceStep), &got)
		if d := cmp.Diff(want(in), got); d != "" {
			c.Errorf("%s has another output (-want +got):\n%s", in.Name, d)
		}
		if q := of(entries, "queued"); len(q) != 1 || q[0].body.ID != c.runs[in.Name] {
			c.Errorf("%s: run %q was acknowledged, and these were recorded: %v", in.Name, c.runs[in.Name], q)
		}
		if c.answers[in.Name] != answerOf(in.N) {
			c.Errorf("%s: no answer was acknowledged", in.Name)
		}
		answered := slices.DeleteFunc(of(entries, "answered"), func(e entry) bool { return e.path != "/right/number" })
		if len(answered) != 1 || len(answered[0].body.Answer.Value) != 1 || answered[0].body.Answer.Value[0] != answerOf(in.N) {
			c.Errorf("%s: the acknowledged answer is recorded as %v", in.Name, answered)
		}
		spawned := of(entries, "spawned")
		if len(spawned) != 1 {
			c.Errorf("%s has spawned %v", in.Name, spawned)
			continue
		}
		var leg int
		c.one(in.Name+"-leg", all[spawned[0].body.Child], legSteps, &leg)
		if leg != want(in).Leg {
			c.Errorf("the child of %s returned %d, want %d", in.Name, leg, want(in).Leg)
		}
	}
	return all
}

// one looks at a thread: its sequence, its end, its steps and what they did.
func (c *clients) one(name string, entries []entry, steps []string, into any) {
	for i, e := range entries {
		if e.seq != int64(i+1) {
			c.Errorf("entry %d of %s has the sequence %d", i+1, name, e.seq)
		}
	}
	ends := of(entries, "ended")
	if len(ends) != 1 || ends[0].body.Status != "succeeded" || len(ends[0].body.Res) != 1 || ends[0].seq != int64(len(entries)) {
		c.Errorf("%s ended like this: %v", name, ends)
	} else if err := json.Unmarshal(ends[0].body.Res[0], into); err != nil {
		c.Errorf("the output of %s: %v", name, err)
	}
	recorded := map[string]int{}
	for _, e := range of(entries, "step") {
		recorded[e.path]++
	}
	expected := map[string]int{}
	for _, path := range steps {
		expected[path] = 1
	}
	if d := cmp.Diff(expected, recorded); d != "" {
		c.Errorf("%s has other outcomes of steps (-want +got):\n%s", name, d)
	}
	lines, err := c.world.lines(name)
	if err != nil {
		c.Error(err)
	}
	done, keys := map[string]int{}, map[string]map[string]bool{}
	for _, l := range lines {
		if l.what == did || l.what == effect {
			done[l.path]++
		}
		if keys[l.path] == nil {
			keys[l.path] = map[string]bool{}
		}
		keys[l.path][l.key] = true
	}
	for _, path := range steps {
		if done[path] < 1 || path == onceStep && done[path] != 1 {
			c.Errorf("step %s of %s was done %d times: %v", path, name, done[path], lines)
		}
		if len(keys[path]) != 1 {
			c.Errorf("step %s of %s has the keys %v", path, name, slices.Collect(maps.Keys(keys[path])))
		}
	}
}

// told demands that a reader saw exactly the journal.
func (c *clients) told(r *reader, entries []entry) {
	if r.err != nil {
		c.Errorf("a reader of %s: %v", r.thread, r.err)
		return
	}
	var journal []seen
	for _, e := range entries {
		journal = append(journal, seen{e.seq, e.kind, e.path, e.time.UTC().Format(time.RFC3339Nano)})
	}
	if d := cmp.Diff(journal, r.events); d != "" {
		c.Errorf("a reader of %s saw something else than its journal (-journal +stream):\n%s", r.thread, d)
	}
}

// takeovers returns how long after a kill other workers claimed what the victims
// held.
func (c *clients) takeovers(all map[string][]entry) (times []time.Duration) {
	shots := map[string]time.Time{}
	for _, n := range c.place.all() {
		if n.mu.Lock(); !n.shot.IsZero() {
			for _, w := range c.workersOf(n) {
				shots[w] = n.shot
			}
		}
		n.mu.Unlock()
	}
	for _, entries := range all {
		holder := ""
		for _, e := range entries {
			switch shot, killed := shots[holder]; e.kind {
			case "claimed":
				if took := e.time.Sub(shot); killed && took > 0 {
					times = append(times, took)
				}
				holder = e.body.Worker
			case "suspended", "released", "ended", "blocked":
				holder = ""
			}
		}
	}
	slices.Sort(times)
	return times
}

// percentiles says what a number of sorted times is like.
func percentiles(times []time.Duration) string {
	if len(times) == 0 {
		return "there were none"
	}
	at := func(p int) time.Duration { return times[min(len(times)-1, len(times)*p/100)].Round(time.Millisecond) }
	return fmt.Sprintf("%v (p50), %v (p99), %v (max of %d)", at(50), at(99), at(100), len(times))
}

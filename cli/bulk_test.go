package cli

import (
	"fmt"
	"strings"
	"testing"

	"github.com/perdure/perdure/api"
	"github.com/perdure/perdure/cli/internal/exit"
)

// TestBulk does something to many threads, with a server and directly on a store.
func TestBulk(t *testing.T) {
	both(t, func(t *testing.T, p *place) {
		for _, id := range []string{"a", "b", "c"} {
			p.run("", "run", "fail", "x", "--thread", id, "--user", "ann").want(exit.Failed)
			p.run("", "run", "wait", "x", "--thread", "w"+id, "--user", "bob").want(exit.Waiting)
		}
		p.run("", "bulk", "erase").want(exit.BadUsage, "or --all for all threads")
		p.run("", "bulk", "erase", "--status", "fine").want(exit.BadUsage, "no status")
		p.run("", "bulk", "cancel", "--user", "bob", "--dry-run").want(exit.OK, "wa", "it would cancel 3 threads, and skip those for which there is nothing to do; nothing was done")
		p.run("", "bulk", "cancel", "--user", "bob").want(exit.BadUsage, "cancel 3 threads: confirm it with --yes")
		p.run("", "bulk", "erase", "--status", "failed", "--older", "1h", "--yes").want(exit.OK, "no thread matches")
		for _, empty := range []string{"--user", "--flow", "--status", "--older", "--updated-before"} {
			p.run("", "bulk", "erase", "--asks", empty, "", "--dry-run").want(exit.BadUsage, empty+" is empty")
		}
		p.run("", "bulk", "erase", "--older", "soon").want(exit.BadUsage, "such as 30d")
		p.run("", "bulk", "erase", "--metadata", "a=b", "--dry-run").want(exit.OK, "it would erase 0 threads")
		p.run("", "bulk", "erase", "--metadata", "a=b", "--metadata", "a=c").want(exit.BadUsage, `"a" is there twice`)
		p.run("", "run", "echo", "x", "--metadata", "a=b", "--metadata", "a=c").want(exit.BadUsage, `"a" is there twice`)
		p.run("", "bulk", "erase", "--user", "ann", "--updated-before", "0001-01-01T00:00:00Z").want(exit.BadUsage, "--updated-before")
		p.run("", "bulk", "erase", "--updated-before", "1970-01-01T00:00:00Z", "--yes").want(exit.OK, "no thread matches")
		p.run("", "bulk", "erase", "--created-before", "yesterday").want(exit.BadUsage, "--created-before")
		p.run("", "bulk", "cancel", "--user", "eve", "--yes").want(exit.OK, "no thread matches")
		p.run("", "bulk", "cancel", "--user", "bob", "--yes", "--reason", "spring").want(exit.OK, "done: 3 done, 0 skipped, 0 failed")
		for _, id := range []string{"wa", "wb", "wc"} {
			p.ended(id) // a run that has begun ends with a worker
		}
		p.run("", "threads", "--status", "cancelled").want(exit.OK, "wa", "wb", "wc")
		p.run("", "fork", "a", "--as", "copy").want(exit.OK)
		p.run("", "bulk", "erase", "--status", "failed", "--yes", "--json").want(exit.OK, `"done": 4`)
		if r := p.run("", "threads"); strings.Contains(r.out, "copy") || !strings.Contains(r.out, "wa") {
			t.Errorf("left are\n%s", r.out)
		}
		r := p.run("", "bulk", "list").want(exit.OK, "erase", "cancel", "spring")
		id := strings.Fields(strings.Split(r.out, "\n")[1])[0]
		p.run("", "bulk", "show", id).want(exit.OK, "4 done")
		p.run("", "bulk", "stop", id).want(exit.Conflict, "is done")
		p.run("", "bulk", "show", "nope").want(exit.NotFound, "bulk list")
	})
}

// TestBulkExecutesNoRuns cancels and erases runs that wait for a worker.
func TestBulkExecutesNoRuns(t *testing.T) {
	p := stored(t)
	for _, id := range []string{"a", "b", "c"} {
		p.run("", "run", "echo", "x", "--thread", id, "--user", "ann", "--detach").want(exit.OK)
		p.run("", "run", "echo", "x", "--thread", "e"+id, "--user", "bob", "--detach").want(exit.OK)
	}
	p.run("", "bulk", "cancel", "--user", "ann", "--yes").want(exit.OK, "done: 3 done, 0 skipped, 0 failed")
	p.run("", "bulk", "erase", "--status", "queued", "--user", "bob", "--yes").want(exit.OK, "done: 3 done, 0 skipped, 0 failed")
	if r := p.run("", "threads", "--status", "succeeded", "--json").want(exit.OK); strings.Contains(r.out, `"id"`) {
		t.Errorf("runs were executed:\n%s", r.out)
	}
}

// TestTimesOfPeople: days and ages are times too.
func TestTimesOfPeople(t *testing.T) {
	p := stored(t)
	p.run("", "run", "echo", "x", "--thread", "a", "--detach").want(exit.OK)
	for flags, n := range map[string]int{"--created 2020-01-01": 1, "--created 1h": 1, "--created-before 2020-01-01": 0, "--created-before 1d": 0,
		"--updated 0s": 0, "--updated-before 0s": 1, "--created 2020-01-01T00:00:00Z": 1} {
		p.run("", append([]string{"bulk", "erase", "--dry-run"}, strings.Fields(flags)...)...).want(exit.OK, fmt.Sprint("it would erase ", n, " thread"))
		if r := p.run("", append([]string{"threads", "--json"}, strings.Fields(flags)...)...).want(exit.OK); strings.Count(r.out, `"id"`) != n {
			t.Errorf("%s lists %s", flags, r.out)
		}
	}
	for _, wrong := range []string{"2020-02-30", "soon", "0001-01-01", "0001-01-01T00:00:00Z"} {
		p.run("", "bulk", "erase", "--dry-run", "--created-before", wrong).want(exit.BadUsage, "2006-01-02")
		p.run("", "threads", "--created-before", wrong).want(exit.BadUsage, "2006-01-02")
	}
}

// TestAgo parses times as people write them.
func TestAgo(t *testing.T) {
	for text, want := range map[string]string{"30d": "720h0m0s", "1.5d": "36h0m0s", "12h": "12h0m0s", "90m": "1h30m0s", "0s": "0s", "": "", "d": "", "-1d": "", "-2h": "", "soon": ""} {
		d, err := api.ParseAge(text)
		if got := d.String(); err == nil && got != want || (err == nil) != (want != "") {
			t.Errorf("%q is %v, %v", text, d, err)
		}
	}
}

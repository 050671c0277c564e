package cli

import (
	"strings"
	"testing"

	"github.com/perdure/perdure/cli/internal/exit"
)

// TestArchiveCommands moves a thread to the archive and back, on a server and on a
// store.
func TestArchiveCommands(t *testing.T) {
	both(t, func(t *testing.T, p *place) {
		p.run("", "run", "echo", "tea", "--thread", "t").want(exit.OK)
		if p.rt == nil {
			p.run("", "archive", "t").want(exit.BadUsage, "--archive URL")
			p.run("", "archive", "t", "--archive", "ftp://x").want(exit.BadUsage, "ftp")
			p.flags = append(p.flags, "--archive", "file:"+t.TempDir())
		}
		p.run("", "archived").want(exit.OK, "there are no such threads")
		p.run("", "archive", "t", "--reason", "old").want(exit.OK, "thread t is archived", "unarchive t")
		p.run("", "show", "t").want(exit.NotFound, "is archived", "perdure unarchive t")
		p.run("", "run", "echo", "tea", "--thread", "t").want(exit.NotFound, "perdure unarchive t")
		p.run("", "archived").want(exit.OK, "t ", "echo", "succeeded")
		p.run("", "archived", "--user", "nobody").want(exit.OK, "there are no such threads")
		p.run("", "archived", "--json").want(exit.OK, `"where": "file:`)
		p.run("", "unarchive", "t").want(exit.OK, "thread t is back")
		p.run("", "show", "t").want(exit.OK, "tea")
		p.run("", "archive", "t").want(exit.OK)
		p.run("", "unarchive", "t").want(exit.OK)
		p.run("", "fork", "t", "--as", "copy").want(exit.OK)
		if r := p.run("", "archive", "t").want(exit.Conflict, "copy"); strings.Contains(r.err, "--dependents") {
			t.Errorf("archive has no such flag: %s", r.err)
		}
		p.run("", "erase", "t", "--yes").want(exit.Conflict, "--dependents erases them too")
		p.run("", "erase", "t", "--yes", "--dependents").want(exit.OK)
		p.run("", "unarchive", "t").want(exit.NotFound)
	})
}

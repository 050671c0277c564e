package cli

import (
	"os"
	"path/filepath"
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
			archive := "file:" + t.TempDir()
			p.run("", "archive", "t", "--archive", archive).want(exit.OK)
			p.run("", "show", "t").wantWords(exit.NotFound, "perdure unarchive t --store "+p.flags[1]+" --archive URL")
			p.run("", "unarchive", "t", "--archive", archive).want(exit.OK)
			p.flags = append(p.flags, "--archive", archive)
		}
		again := "perdure unarchive t " + strings.Join(p.flags, " ")
		p.run("", "archived").want(exit.OK, "there are no such threads")
		p.run("", "archive", "t", "--reason", "old").wantWords(exit.OK, "thread t is archived", again)
		p.run("", "show", "t").wantWords(exit.NotFound, "is archived", "restore it first: "+again)
		p.run("", "run", "echo", "tea", "--thread", "t").wantWords(exit.NotFound, again)
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

// TestArchiveOfAnEmptyMountPoint: a command that starts while the disk of the archive is
// not mounted writes nothing below it.
func TestArchiveOfAnEmptyMountPoint(t *testing.T) {
	p := stored(t)
	folder := filepath.Join(t.TempDir(), "mnt")
	mount := func() {
		if err := os.Mkdir(folder, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	mount()
	p.flags = append(p.flags, "--archive", "file:"+folder)
	for _, id := range []string{"a", "b"} {
		p.run("", "run", "echo", "x", "--thread", id).want(exit.OK)
	}
	p.run("", "doctor").want(exit.OK)
	p.run("", "archive", "a").want(exit.OK)
	if err := os.Rename(folder, folder+".disk"); err != nil {
		t.Fatal(err)
	}
	mount()
	p.run("", "archive", "b").want(exit.Unavailable, "mount its disk")
	p.run("", "doctor").want(exit.Failed, "mount its disk")
	if err := os.Remove(folder); err != nil {
		t.Fatal(err) // something was written to it
	}
	if err := os.Rename(folder+".disk", folder); err != nil {
		t.Fatal(err)
	}
	p.run("", "archive", "b").want(exit.OK)
	p.run("", "unarchive", "a").want(exit.OK)
	p.run("", "doctor").want(exit.OK)
}

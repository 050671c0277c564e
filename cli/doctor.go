package cli

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/api"
	"github.com/perdure/perdure/cli/internal/exit"
	"github.com/perdure/perdure/cli/internal/link"
	"github.com/perdure/perdure/client"
	"github.com/perdure/perdure/internal/safe"
	"github.com/perdure/perdure/internal/terminal"
	"github.com/perdure/perdure/internal/threads"
	"github.com/perdure/perdure/server"
	"github.com/perdure/perdure/store"
	"github.com/perdure/perdure/store/sqlitestore"
	"github.com/spf13/cobra"
)

// What a check can find.
const (
	fine   = "ok"
	poor   = "warn" // works, but is worth knowing
	broken = "broken"
)

// finding is the result of a check.
type finding struct {
	Check  string `json:"check"`
	Status string `json:"status"`
	Detail string `json:"detail"`
	Fix    string `json:"fix,omitempty"` // what to do
}

// doctorCommand returns the command that looks for problems.
func doctorCommand(a *app) *cobra.Command {
	var tokens string
	c := &cobra.Command{
		Use:   "doctor",
		Short: "check the store, the server and this machine, and say what to fix",
		Long: `Checks that the store keeps what is written to it, that workers are alive, that the
clock and the disk are sound and, with --server, that the server answers. The exit
status is 1 if something is broken.`,
		Example: "  perdure doctor\n  perdure doctor --store sqlite:perdure.db --tokens tokens.json\n  perdure doctor --server http://127.0.0.1:7373 --json",
		Args:    cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			d := &doctor{app: a}
			d.machine(c.Context())
			if a.conn.Server != "" {
				d.askServer(c.Context())
			} else {
				d.openStore(c.Context())
			}
			if tokens != "" {
				d.tokenFile(tokens)
			}
			if err := c.Context().Err(); err != nil {
				return err
			}
			return d.report()
		},
	}
	c.Flags().StringVar(&tokens, "tokens", "", "JSON file with tokens, as for serve")
	return c
}

// doctor collects findings.
type doctor struct {
	app   *app
	found []finding
}

func (d *doctor) note(check, status, fix, format string, args ...any) {
	d.found = append(d.found, finding{check, status, fmt.Sprintf(format, args...), d.app.named(fix)})
}

// report prints what was found.
func (d *doctor) report() error {
	t, bad := d.app.term, 0
	for _, f := range d.found {
		if f.Status == broken {
			bad++
		}
	}
	if t.JSON {
		if err := t.PrintJSON(struct {
			OK     bool      `json:"ok"`
			Checks []finding `json:"checks"`
		}{bad == 0, d.found}); err != nil {
			return err
		}
	} else {
		styles := map[string]string{fine: terminal.Green, poor: terminal.Amber, broken: terminal.Red}
		for _, f := range d.found {
			t.Printf("%s  %-11s %s\n", t.Style(styles[f.Status], fmt.Sprintf("%-6s", f.Status)), f.Check, safe.Line(f.Detail))
			if f.Fix != "" {
				t.Printf("%20s-> %s\n", "", safe.Line(f.Fix))
			}
		}
		if bad == 0 {
			t.Printf("\nNothing is broken.\n")
		} else {
			t.Printf("\n%s found something broken.\n", terminal.Count(bad, "check", "checks"))
		}
	}
	if bad > 0 {
		return exit.Quiet(exit.Failed)
	}
	return nil
}

// machine checks what everything else depends on.
func (d *doctor) machine(ctx context.Context) {
	d.note("program", fine, "", "version %s, %s, %s/%s, %d CPUs", version(), runtime.Version(), runtime.GOOS, runtime.GOARCH, runtime.NumCPU())
	begin := time.Now()
	select {
	case <-time.After(100 * time.Millisecond):
	case <-ctx.Done():
		return
	}
	end := time.Now()
	d.judgeClock(begin, end.Sub(begin), end.Round(0).Sub(begin.Round(0)))
	if flows := d.app.flowNames(); len(flows) > 0 {
		d.note("flows", fine, "", "%s", strings.Join(flows, ", "))
	} else {
		d.note("flows", poor, "pass flows to cli.Main", "this program has none, so it cannot execute anything")
	}
}

// judgeClock checks the clock of this machine: the time it shows, and how far it
// moved compared with the monotonic clock.
func (d *doctor) judgeClock(now time.Time, monotonic, wall time.Duration) {
	const sync = "set the clock, and keep it in sync with NTP"
	off := (wall - monotonic).Abs()
	switch {
	case now.Year() < 2025 || now.Year() > 2100:
		d.note("clock", broken, sync, "it shows %s: timers and expiries would be wrong", now.Format(time.DateOnly))
	case off > 50*time.Millisecond:
		d.note("clock", poor, "the clock is being set right now; leases use the monotonic clock, but timers follow this one", "it jumped by %v within %v", off.Round(time.Millisecond), monotonic.Round(time.Millisecond))
	default:
		d.note("clock", fine, "", "%s, goes as fast as the monotonic one", now.UTC().Format(time.RFC3339))
	}
}

// tokenFile checks a file with tokens as serve does.
func (d *doctor) tokenFile(path string) {
	if _, err := server.TokenFile(path); err != nil {
		d.note("tokens", broken, "serve would refuse it; the message says why", "%s: %v", path, err)
		return
	}
	d.note("tokens", fine, "", "%s can be used", path)
}

// How much the doctor looks at.
const (
	doctorThreads = 200
	doctorTime    = 5 * time.Second
	doctorFile    = 64 << 20 // larger databases are not read in whole
)

// askServer checks a server from outside.
func (d *doctor) askServer(ctx context.Context) {
	l, err := d.app.conn.Dial(d.app.conn.Server, d.app.conn.GivenToken())
	if err != nil {
		d.note("server", broken, "give its address, such as http://127.0.0.1:7373", "%v", err)
		return
	}
	defer l.Close()
	ctx, cancel := context.WithTimeout(ctx, doctorTime)
	defer cancel()
	begin := time.Now()
	if !l.Answers(ctx) {
		d.note("server", broken, "start one with perdure dev or perdure serve, or check the address", "no Perdure server answers at %s", d.app.conn.Server)
		return
	}
	took := time.Since(begin)
	if _, err := client.Do(ctx, l.Client, api.ReadyGet, api.Nothing{}); err != nil {
		d.note("ready", broken, "look at the log of the server", "it is not ready: %v", err)
	}
	stats, err := client.Do(ctx, l.Client, api.StatsGet, api.Nothing{})
	if err != nil {
		d.note("server", broken, "give a token that may read, with --token or $PERDURE_TOKEN", "it answers, but %v", err)
		return
	}
	d.note("server", fine, "", "%s answers in %v, version %s, up for %v", d.app.conn.Server, round(took), stats.Version, time.Duration(stats.Uptime)*time.Second)
	d.workers(stats)
	d.moved(ctx, l.Client, stats)
}

// openStore checks the store that the flags name, or that of dev.
func (d *doctor) openStore(ctx context.Context) {
	url := d.app.conn.Store
	if url == "" {
		url = link.DevURL
		if _, err := os.Stat(link.DevFile); err != nil {
			d.note("store", poor, "perdure dev creates one; name another with --store or --server", "there is none in ./%s", link.DevFolder)
			d.disk(".")
			return
		}
	}
	folder := link.Folder(url)
	if file, ok := link.SQLiteFile(url); ok && !d.sqlite(file) {
		return
	}
	begin := time.Now()
	l, err := d.app.conn.Open(ctx, url)
	if err != nil {
		d.note("store", broken, adviceOn(err), "%v", err)
		return
	}
	defer l.Close()
	s := threads.Behind(l.Runtime).All.Store
	d.note("store", fine, "", "%s opens in %v", link.StoreName(url), round(time.Since(begin)))
	d.durability(s)
	if folder != "" {
		d.disk(folder)
	}
	d.probe(ctx, s)
	stats, err := client.Do(ctx, l.Client, api.StatsGet, api.Nothing{})
	if err != nil {
		d.note("threads", broken, "the message says where the damage is", "they cannot be counted: %v", err)
		return
	}
	d.workers(stats)
	d.moved(ctx, l.Client, stats)
	d.threads(ctx, l.Runtime)
	d.erases(ctx, s)
}

// erases says whether erases of users were interrupted.
func (d *doctor) erases(ctx context.Context, s store.Store) {
	n := 0
	for _, err := range s.List(ctx, threads.ErasingUser, "") {
		if err != nil {
			return // other checks say why
		}
		n++
	}
	if n > 0 {
		d.note("erases", poor, "repeat perdure erase --user USER; a worker with the archive of the store also completes it, after some minutes", "%s of users under way, or interrupted", terminal.Count(n, "erase", "erases"))
	}
}

// moved says where the threads continue if they were migrated to another store.
func (d *doctor) moved(ctx context.Context, c *client.Client, stats *api.Stats) {
	n := stats.Statuses["moved"]
	if n == 0 {
		return
	}
	for t, err := range c.List(ctx, perdure.ListOptions{}) {
		if err != nil {
			d.note("moved", poor, "", "%d of %d threads have moved to another store, but the list of threads ends early: %v", n, stats.Threads, err)
			return
		}
		if t.Moved != "" {
			d.note("moved", poor, "connect to that store, and stop what still uses this one", "the store has moved: %d of %d threads continue in %s, and can only be read here", n, stats.Threads, t.Moved)
			return
		}
	}
}

// durability says what writes survive, and what could be changed.
func (d *doctor) durability(s store.Store) {
	advice := func(otherwise string) string {
		if weak, ok := store.As[store.Weak](s); ok && weak.Weakness() != "" {
			return weak.Weakness()
		}
		return otherwise
	}
	switch class := store.DurabilityOf(s); class {
	case store.Power:
		d.note("durability", fine, "", "an acknowledged write survives a power failure")
	case store.Process:
		d.note("durability", poor, advice("keep it on a disk, with the default settings"), "writes survive the death of the process, but not a power failure")
	default:
		d.note("durability", poor, advice("use sqlite: for data that is to last"), "nothing is sure to survive the process that holds it")
	}
}

// adviceOn says what to do about a store that does not open.
func adviceOn(err error) string {
	switch {
	case errors.Is(err, store.ErrScheme):
		return "check the URL; if it is right, use a program of your own that links the driver and calls cli.Main"
	case errors.Is(err, store.ErrLocked):
		return "another process holds it: stop that process, or wait until it is done"
	case errors.Is(err, store.ErrUnavailable):
		return "it is not ready, or cannot be reached: the message says why"
	case errors.Is(err, store.ErrKey):
		return "it is sealed: only a program that has its keys opens it"
	case errors.Is(err, store.ErrNewer):
		return "use the version that wrote it, or a newer one"
	case errors.Is(err, store.ErrForeign):
		return "it holds something else: check the URL"
	case errors.Is(err, fs.ErrPermission), strings.Contains(err.Error(), "readonly"):
		return "let this user write to the file and to its folder"
	}
	return "check the URL, and that this user may read and write there"
}

// sqlite checks a database from outside, before the store opens it.
func (d *doctor) sqlite(file string) bool {
	info, err := os.Stat(file)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		d.note("store", broken, "check the path; perdure dev and perdure serve create a new one", "there is no file %s", file)
		return false
	case err != nil:
		d.note("store", broken, "check the path, and who may read it", "%v", err)
		return false
	case exposed(file, info):
		d.note("privacy", poor, "chmod o-rwx "+file+", or keep it in a folder of your own", "%s can be read by everyone on this machine", file)
	}
	checks := []string{"PRAGMA journal_mode", "SELECT sqlite_version()"}
	if info.Size() <= doctorFile {
		checks = append(checks, "PRAGMA quick_check(1)")
	}
	said, err := sqlitestore.Inspect(file, checks...)
	if err == nil && strings.Contains(said[0], "not a database") { // the answer to the first question
		err = errors.New(file + " is not a SQLite database")
	}
	if err != nil {
		d.note("sqlite", broken, "it may not be a database, or may belong to somebody else", "%v", err)
		return false
	}
	status, fix, detail := fine, "", fmt.Sprintf("%s, %d KiB, journal mode %s, SQLite %s", file, info.Size()>>10, said[0], said[1])
	if said[0] != "wal" {
		status, fix = poor, "let perdure open it for writing: it sets wal itself"
	}
	if wal, err := os.Stat(file + "-wal"); err == nil && wal.Size() > doctorFile {
		status, fix = poor, "a program keeps a transaction open and blocks others; find it and stop it"
		detail += fmt.Sprintf(", and a WAL of %d MiB", wal.Size()>>20)
	}
	if len(said) > 2 && said[2] != "ok" {
		status, fix = broken, "restore it from a backup, or export what can be read with perdure export"
		detail += ": " + said[2]
	}
	d.note("sqlite", status, fix, "%s", detail)
	return true
}

// exposed reports whether everyone on this machine can read a file.
func exposed(file string, info fs.FileInfo) bool {
	if runtime.GOOS == "windows" || info.Mode().Perm()&0o004 == 0 {
		return false
	}
	folder, err := os.Stat(filepath.Dir(file))
	return err == nil && folder.Mode().Perm()&0o001 != 0
}

// probe writes, reads and removes a cell and a journal.
func (d *doctor) probe(ctx context.Context, s store.Store) {
	name := "doctor/" + rand.Text()
	begin := time.Now()
	version, err := s.Put(ctx, name, []byte("probe"), "")
	put := time.Since(begin)
	if err == nil {
		var cell store.Cell
		if cell, err = s.Get(ctx, name); err == nil && string(cell.Value) != "probe" {
			err = fmt.Errorf("a cell was read back as %q", cell.Value)
		}
		err = errors.Join(err, s.Delete(ctx, name, version))
	}
	begin = time.Now()
	if err == nil {
		_, err = store.AppendOnce(ctx, s, name, 0, []byte("probe"))
	}
	added := time.Since(begin)
	if err == nil {
		var entries []store.Entry
		if entries, err = store.ReadAll(ctx, s, name, 0); err == nil && (len(entries) != 1 || string(entries[0].Data) != "probe") {
			err = fmt.Errorf("a journal with 1 entry was read back with %d", len(entries))
		}
		err = errors.Join(err, s.Drop(ctx, name))
	}
	if err != nil {
		fix := "check free space, permissions, and that no other program holds the store"
		if errors.Is(err, store.ErrUnavailable) {
			fix = adviceOn(err)
		}
		d.note("writing", broken, fix, "%v", err)
		return
	}
	status, fix := fine, ""
	if max(put, added) > time.Second {
		status, fix = poor, "each step waits for a write: use a faster disk, or find out what keeps it busy"
	}
	d.note("writing", status, fix, "a cell took %v, an append %v", round(put), round(added))
}

// workers checks whether a worker executes what is to be done.
func (d *doctor) workers(stats *api.Stats) {
	due := stats.Statuses[string(perdure.Queued)] + stats.Statuses[string(perdure.Running)]
	switch {
	case stats.Workers == 0 && due > 0:
		d.note("workers", poor, "start perdure worker, dev or serve on this store", "none is alive, and %d threads have work for one", due)
	case stats.Workers == 0:
		d.note("workers", fine, "", "none is alive, and there is nothing to do")
	default:
		d.note("workers", fine, "", "%d alive", stats.Workers)
	}
	stuck := stats.Statuses[string(perdure.Blocked)] + stats.Statuses[string(perdure.Quarantined)]
	status, fix := fine, ""
	if stuck > 0 {
		status, fix = poor, "perdure threads --status blocked (or quarantined), perdure show THREAD says why"
	}
	d.note("threads", status, fix, "%d, of them %d blocked or quarantined; %d open asks", stats.Threads, stuck, stats.Asks)
}

// threads compares the newest summaries with the journals that they summarize.
func (d *doctor) threads(ctx context.Context, rt *perdure.Runtime) {
	ctx, cancel := context.WithTimeout(ctx, doctorTime)
	defer cancel()
	looked, behind := 0, 0
	for s, err := range rt.List(ctx, perdure.ListOptions{Limit: doctorThreads}) {
		if ctx.Err() != nil {
			break
		}
		if err != nil {
			d.note("journals", broken, "the message says where the damage is", "the list of threads ends early: %v", err)
			return
		}
		t, err := rt.Get(ctx, s.ID)
		switch {
		case ctx.Err() != nil:
		case errors.Is(err, perdure.ErrNoThread), errors.Is(err, perdure.ErrErased), errors.Is(err, perdure.ErrArchived): // meanwhile
		case err != nil:
			d.note("journals", broken, "perdure fork "+s.ID+" --at N makes a thread of the part that is good", "thread %s: %v", s.ID, err)
			return
		case t.Status != s.Status && time.Since(t.Updated) > time.Minute:
			behind++
		}
		looked++
	}
	if behind > 0 {
		d.note("journals", poor, "workers repair that by themselves after a while", "of %d threads, %d are listed with an old status", looked, behind)
		return
	}
	d.note("journals", fine, "", "%d threads read, all as they are listed", looked)
}

// disk checks how much space is left.
func (d *doctor) disk(folder string) {
	free, err := freeSpace(folder)
	switch {
	case errors.Is(err, errors.ErrUnsupported):
	case err != nil:
		d.note("disk", poor, "", "%v", err)
	case free < 100<<20:
		d.note("disk", broken, "free some space: a store on a full disk accepts no writes", "%d MiB are free in %s", free>>20, folder)
	case free < 1<<30:
		d.note("disk", poor, "free some space before the disk is full", "%d MiB are free in %s", free>>20, folder)
	default:
		d.note("disk", fine, "", "%d GiB are free in %s", free>>30, folder)
	}
}

func round(t time.Duration) time.Duration {
	if t > 10*time.Millisecond {
		return t.Round(time.Millisecond)
	}
	return t.Round(10 * time.Microsecond)
}

package cli

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/api"
	"github.com/perdure/perdure/cli/internal/exit"
	"github.com/perdure/perdure/client"
	"github.com/perdure/perdure/internal/safe"
	"github.com/perdure/perdure/internal/terminal"
	"github.com/perdure/perdure/server"
	"github.com/perdure/perdure/store"
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
			t.Printf("%s  %-11s %s\n", t.Style(styles[f.Status], fmt.Sprintf("%-6s", f.Status)), safe.Label(f.Check), safe.Line(f.Detail))
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
	d.app.conn.Attempts = -1 // it says what is, and does not wait for what will be
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
	_, unready := client.Do(ctx, l.Client, api.ReadyGet, api.Nothing{})
	if unready != nil {
		d.note("ready", broken, "mend what it says, or look at the log of the server", "it is not ready: %v", unready)
	}
	stats, err := client.Do(ctx, l.Client, api.StatsGet, api.Nothing{})
	switch {
	case errors.Is(err, api.ErrUnauthorized), errors.Is(err, api.ErrScope):
		d.note("server", broken, "give a token that may read, with --token or $PERDURE_TOKEN", "it answers, but %v", err)
	case err != nil && unready == nil: // or else it is the same
		d.note("server", broken, "look at the log of the server", "it answers, but %v", err)
	}
	if err != nil {
		return
	}
	d.note("server", fine, "", "%s answers in %v, version %s, up for %v", d.app.conn.Server, round(took), stats.Version, time.Duration(stats.Uptime)*time.Second)
	d.warnings(stats.Warnings)
	d.workers(stats)
	d.moved(ctx, l.Client, stats)
}

// warnings passes on what the store warns of.
func (d *doctor) warnings(found []store.Warning) {
	for _, w := range found {
		d.note(w.Kind, poor, w.Fix, "%s", w.Detail)
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

func round(t time.Duration) time.Duration {
	if t > 10*time.Millisecond {
		return t.Round(time.Millisecond)
	}
	return t.Round(10 * time.Microsecond)
}

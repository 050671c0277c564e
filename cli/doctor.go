package cli

import (
	"context"
	"fmt"
	"runtime"
	"strings"
	"time"

	"github.com/perdure/perdure/cli/internal/exit"
	"github.com/perdure/perdure/internal/safe"
	"github.com/perdure/perdure/internal/terminal"
	"github.com/perdure/perdure/server"
	"github.com/spf13/cobra"
)

func init() { register(doctorCommand) }

// What a check can find.
const (
	fine   = "ok"
	poor   = "warn" // works, but should be known
	broken = "broken"
)

// finding is what came of a check.
type finding struct {
	Check  string `json:"check"`
	Status string `json:"status"`
	Detail string `json:"detail"`
	Fix    string `json:"fix,omitempty"` // what to do
}

// doctorCommand makes the command that looks for what is wrong.
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
			switch {
			case a.conn.Server != "":
				d.askServer(c.Context())
			default:
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
	*app
	found []finding
}

func (d *doctor) note(check, status, fix, format string, args ...any) {
	d.found = append(d.found, finding{check, status, fmt.Sprintf(format, args...), d.named(fix)})
}

// report prints what was found.
func (d *doctor) report() error {
	bad := 0
	for _, f := range d.found {
		if f.Status == broken {
			bad++
		}
	}
	if d.term.JSON {
		out := struct {
			OK     bool      `json:"ok"`
			Checks []finding `json:"checks"`
		}{bad == 0, d.found}
		if err := d.term.PrintJSON(out); err != nil {
			return err
		}
	} else {
		d.printFindings(bad)
	}
	if bad > 0 {
		return exit.Quiet(exit.Failed)
	}
	return nil
}

func (d *doctor) printFindings(bad int) {
	styles := map[string]string{fine: terminal.Green, poor: terminal.Amber, broken: terminal.Red}
	for _, f := range d.found {
		d.term.Printf("%s  %-11s %s\n", d.term.Style(styles[f.Status], fmt.Sprintf("%-6s", f.Status)), f.Check, safe.Line(f.Detail))
		if f.Fix != "" {
			d.term.Printf("%20s-> %s\n", "", safe.Line(f.Fix))
		}
	}
	switch bad {
	case 0:
		d.term.Printf("\nNothing is broken.\n")
	case 1:
		d.term.Printf("\n1 check found something broken.\n")
	default:
		d.term.Printf("\n%d checks found something broken.\n", bad)
	}
}

// machine checks what all else stands on.
func (d *doctor) machine(ctx context.Context) {
	d.note("program", fine, "", "version %s, %s, %s/%s, %d CPUs", version(), runtime.Version(), runtime.GOOS, runtime.GOARCH, runtime.NumCPU())
	begin := time.Now()
	wait := time.NewTimer(100 * time.Millisecond)
	defer wait.Stop()
	select {
	case <-wait.C:
	case <-ctx.Done():
		return
	}
	end := time.Now()
	d.judgeClock(begin, end.Sub(begin), end.Round(0).Sub(begin.Round(0)))
	var flows []string
	for _, f := range d.flows {
		flows = append(flows, f.Name())
	}
	if len(flows) == 0 {
		d.note("flows", poor, "give flows to cli.Main", "this program has none, so it cannot execute anything")
		return
	}
	d.note("flows", fine, "", "%s", strings.Join(flows, ", "))
}

// judgeClock judges the clock of this machine: what it says now, and how far it went
// while the monotonic one went on.
func (d *doctor) judgeClock(now time.Time, monotonic, wall time.Duration) {
	const sync = "set the clock, and keep it in sync with NTP"
	off := (wall - monotonic).Abs()
	switch {
	case now.Year() < 2025 || now.Year() > 2100:
		d.note("clock", broken, sync, "it says %s: timers and expiries would be wrong", now.Format(time.DateOnly))
	case off > 50*time.Millisecond:
		d.note("clock", poor, "the clock is being set right now; workers count their leases by the monotonic one, timers follow this one", "it jumped by %v within %v", off.Round(time.Millisecond), monotonic.Round(time.Millisecond))
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

package cli

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"os"
	"slices"
	"strings"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/api"
	"github.com/perdure/perdure/cli/internal/exit"
	"github.com/perdure/perdure/internal/safe"
	"github.com/perdure/perdure/internal/strict"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

func retentionCommand(a *app) *cobra.Command {
	c := operation(a, "retention", "  perdure retention\n  perdure retention due", api.RetentionGet, (*app).retention)
	c.AddCommand(operation(a, "due", "  perdure retention due\n  perdure retention due --limit 1000 --json", api.RetentionDue, (*app).due))
	return c
}

func seenCommand(a *app) *cobra.Command {
	return operation(a, "seen THREAD", "  perdure seen trip-7\n  perdure seen trip-7 --reason \"known, see ticket 12\"", api.ThreadsSee, hinted("noted; by the rules it may go now, see perdure retention"))
}

// retention prints the rules and what came of them.
func (a *app) retention(r *api.Retention) error {
	if len(r.Rules) == 0 {
		a.term.Printf("there are no rules: threads stay until someone erases them\n")
	} else {
		rows := [][]string{{"TENANT", "FLOW", "KEEP", "THEN", "KEEP ARCHIVED", "FAILED"}}
		for _, rule := range r.Rules {
			then, failed := "erase", "once seen"
			if rule.Archive {
				then = "archive"
			}
			if rule.Unseen {
				failed = "like others"
			}
			if rule.Keep == api.Forever {
				then, failed = "", ""
			}
			rows = append(rows, []string{safe.Name(tenantOf(rule)), safe.Name(cmp.Or(rule.Flow, "all")), rule.Keep, then, cmp.Or(rule.KeepArchived, api.Forever), failed})
		}
		if err := a.printPage(rows, ""); err != nil {
			return err
		}
	}
	if r.Begun.IsZero() {
		a.term.Printf("no worker has looked yet\n")
		return nil
	}
	a.term.Printf("last look: %s\n", a.term.When(r.Begun))
	a.term.Printf("so far: %d archived, %d erased, %d erased from the archive\n", r.Total.Archived, r.Total.Erased, r.Total.Expired)
	for _, reason := range slices.Sorted(maps.Keys(r.Skipped)) {
		a.term.Printf("stay for now: %d, %s\n", r.Skipped[reason], safe.Line(because(reason)))
	}
	for _, e := range r.Errors {
		a.term.Printf("thread %s: %s\n", safe.Label(e.Thread), safe.Line(e.Error))
	}
	a.hint("%s lists what would go now, and why others stay", a.command("retention due", ""))
	return nil
}

// because says why threads stay.
func because(reason string) string {
	switch reason {
	case perdure.RetentionPinned:
		return "forks depend on them"
	case perdure.RetentionUnseen:
		return "failed and nobody has seen them; perdure seen THREAD says so"
	case perdure.RetentionChild:
		return "a child is not at rest for long enough"
	case perdure.RetentionDamaged:
		return "they cannot be read"
	case perdure.RetentionChanged:
		return "something happened on them meanwhile"
	case perdure.RetentionFailed:
		return "they could not be removed"
	}
	return reason
}

// due prints a page of threads whose time has come.
func (a *app) due(page *api.DuePage) error {
	if len(page.Threads) == 0 {
		a.hint("nothing would go now")
		return nil
	}
	rows := [][]string{{"ID", "FLOW", "STATUS", "CHANGED", "ACTION", "STAYS", "BY", "WITH"}}
	for _, t := range page.Threads {
		with := ""
		if n := len(t.Children); n > 0 {
			with = fmt.Sprintf("%d children", n)
		}
		rows = append(rows, []string{safe.Name(t.Thread), t.Flow, cmp.Or(string(t.Status), "idle"), a.term.When(t.Updated), t.Action, t.Skipped, safe.Line(strings.Join(t.By, " ")), with})
	}
	return a.printPage(rows, page.Next)
}

// keepFlags are the flags that say how long threads are kept.
type keepFlags struct {
	keep, keepArchived, file string
	rate                     int
}

func (f *keepFlags) add(flags *pflag.FlagSet) {
	flags.StringVar(&f.keep, "keep", "30d", "how long threads stay once all their runs have ended, such as 30d, 12h or 0s, or forever; failed ones stay until perdure seen")
	flags.StringVar(&f.keepArchived, "keep-archived", "365d", "how long threads stay in the archive, if there is one, until they are erased; or forever")
	flags.StringVar(&f.file, "retention", "", "JSON file with rules by tenant and flow, which come before --keep")
	flags.IntVar(&f.rate, "retention-rate", 0, "maximum number of threads to archive or erase per second; 0 means 20")
}

// options adds the rules to options of a runtime, unless the program has its own.
func (f *keepFlags) options(a *app, o *perdure.Options) error {
	if a.opts.Runtime.Retention != nil {
		return nil
	}
	archive := a.conn.Archive != "" || a.opts.Runtime.Archive != nil
	rules, err := readRules(f.file)
	if err != nil {
		return exit.Usage(fmt.Errorf("--retention: %w", err))
	}
	rest := api.RetentionRule{Keep: f.keep, Archive: archive && f.keep != api.Forever}
	if archive {
		rest.KeepArchived = f.keepArchived
	}
	rule, err := rest.Rule()
	if err != nil {
		return exit.Usage(fmt.Errorf("--keep and --keep-archived: %w", err))
	}
	if f.rate < 0 {
		return exit.Usage(errors.New("--retention-rate is a number of threads a second"))
	}
	if !archive && slices.ContainsFunc(rules, func(r perdure.Retention) bool { return r.Archive || r.KeepArchived > 0 }) {
		return exit.Usage(errors.New("--retention: a rule is about an archive, but there is none: use --archive URL"))
	}
	o.Retention, o.RetentionRate = append(rules, rule), f.rate
	return nil
}

// readRules reads rules from a file.
func readRules(file string) (rules []perdure.Retention, err error) {
	if file == "" {
		return nil, nil
	}
	data, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	r, err := strict.NewReader(data)
	if err == nil {
		_, err = r.Raw() // which refuses a name that is there twice
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	d := json.NewDecoder(bytes.NewReader(data))
	d.DisallowUnknownFields()
	var all []api.RetentionRule
	if err := d.Decode(&all); err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("%s: there is more than one list of rules", file)
	}
	for i := range all {
		rule, err := all[i].Rule()
		if err != nil {
			return nil, fmt.Errorf("%s: rule %d: %w", file, i+1, err)
		}
		rules = append(rules, rule)
	}
	return rules, nil
}

// tenantOf says which tenants a rule is for.
func tenantOf(r api.RetentionRule) string {
	if r.Default {
		return "default"
	}
	return cmp.Or(r.Tenant, "all")
}

// logRules says once how long threads are kept.
func logRules(log *slog.Logger, rules []perdure.Retention) {
	for _, r := range rules {
		rule := api.NewRetentionRule(r)
		said := []any{"tenant", tenantOf(rule), "flow", cmp.Or(r.Flow, "all"), "keep", rule.Keep, "then", "erase"}
		if r.Archive {
			said = append(said[:len(said)-1], "archive", "keep-archived", cmp.Or(rule.KeepArchived, api.Forever))
		}
		log.Info("retention", said...)
	}
}

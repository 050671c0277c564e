package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/api"
	"github.com/perdure/perdure/cli/internal/exit"
	"github.com/perdure/perdure/cli/internal/link"
	"github.com/perdure/perdure/cli/internal/render"
	"github.com/perdure/perdure/internal/safe"
	"github.com/perdure/perdure/internal/terminal"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

func bulkCommand(a *app) *cobra.Command {
	list := operation(a, "list", "  perdure bulk list", api.BulksList, (*app).bulks)
	show := operation(a, "show JOB", "  perdure bulk show JOB", api.BulkGet, (*app).bulkJob)
	stop := operation(a, "stop JOB", "  perdure bulk stop JOB", api.BulkStop, (*app).bulkJob)
	resume := operation(a, "resume JOB", "  perdure bulk resume JOB", api.BulkResume, (*app).bulkJob)
	return group(&cobra.Command{
		Use:   "bulk",
		Short: "apply one change to all threads that a filter selects",
		Long: `Apply one change to all threads that a filter selects. The command shows how many
there are and asks before it begins; with --dry-run it only shows them. Workers do the
job in the background, even if one of them dies. The command shows the progress;
interrupting it does not stop the job. Threads that are created or change after the job
began are left alone.`,
		Example: "  perdure bulk retry --status failed --flow research --dry-run\n  perdure bulk cancel --status suspended --user ada --reason \"left the company\"\n  perdure bulk list",
	},
		a.bulkVerb(perdure.BulkCancel, "cancel the runs of many threads", "  perdure bulk cancel --status suspended --user ada\n  perdure bulk cancel --flow research --yes --reason \"wrong model\""),
		a.bulkVerb(perdure.BulkRetry, "retry the failed, blocked or quarantined runs of many threads", "  perdure bulk retry --status failed --flow research --dry-run\n  perdure bulk retry --status failed --rate 5"),
		a.bulkVerb(perdure.BulkErase, "erase many threads for good", "  perdure bulk erase --user ada --dependents --reason \"asked by the customer\"\n  perdure bulk erase --status cancelled --older 30d --yes --detach"),
		a.bulkVerb(perdure.BulkArchive, "move many threads to the archive", "  perdure bulk archive --status succeeded --older 30d --dry-run\n  perdure bulk archive --flow research --status succeeded --rate 20"),
		a.bulkVerb(perdure.BulkExport, "write exports of many threads to the archive", "  perdure bulk export --metadata task_type=audit\n  perdure bulk export --all --yes --detach"),
		list, show, stop, resume)
}

// bulkFlags are the flags of a bulk job.
type bulkFlags struct {
	q                   perdure.BulkRequest
	dryRun, yes, detach bool
	status, older       string
	metadata            texts
	times               [4]string // of the filter, see timesOf
}

// timesOf are the flags for the times of a filter.
var timesOf = [4]struct{ name, about string }{
	{"updated", "only threads that changed at this `time` or later"},
	{"updated-before", "only threads that last changed before this `time`"},
	{"created", "only threads that were created at this `time` or later"},
	{"created-before", "only threads that were created before this `time`"},
}

// bulkVerb returns the command for a verb.
func (a *app) bulkVerb(v perdure.BulkVerb, short, example string) *cobra.Command {
	f := bulkFlags{q: perdure.BulkRequest{Verb: v}, metadata: texts{kind: "NAME=VALUE"}}
	c := &cobra.Command{Use: string(v), Short: short, Example: example, Args: arguments(0, 0),
		Long: capital(short) + ": see perdure bulk --help.\n\nThe exit code is 1 if some threads failed."}
	flags := c.Flags()
	flags.StringVar(&f.status, "status", "", "only threads with this status")
	flags.StringVar(&f.q.Filter.Flow, "flow", "", "only threads whose oldest run that has not ended is of this flow or, if all have ended, whose last run is")
	flags.StringVar(&f.q.Filter.User, "user", "", "only threads of this owner")
	flags.BoolVar(&f.q.Filter.Asks, "asks", false, "only threads with open asks")
	flags.Var(&f.metadata, "metadata", "only threads with this metadata; may be repeated")
	flags.StringVar(&f.older, "older", "", "only threads that have not changed for this long, such as 30d or 12h")
	for i, t := range timesOf {
		flags.StringVar(&f.times[i], t.name, "", t.about)
	}
	flags.BoolVar(&f.q.All, "all", false, "all threads, if there is no filter")
	flags.IntVar(&f.q.Rate, "rate", 0, "threads per second; 0 means 100")
	flags.StringVar(&f.q.Reason, "reason", "", "why, for the record")
	flags.StringVar(&f.q.Key, "key", "", "idempotency key: the same key gives the same job")
	flags.BoolVar(&f.dryRun, "dry-run", false, "only show how many threads there are, and the first ones")
	flags.BoolVar(&f.yes, "yes", false, "do not ask")
	flags.BoolVar(&f.detach, "detach", false, "do not wait until it is done")
	if v == perdure.BulkErase {
		flags.BoolVar(&f.q.Dependents, "dependents", false, "erase forks and children too, even if the filter does not select them")
	}
	c.RunE = func(c *cobra.Command, _ []string) error {
		err := f.fill(time.Now())
		c.Flags().Visit(func(given *pflag.Flag) { // a variable that is not set would select more
			if given.Value.Type() == "string" && given.Value.String() == "" && err == nil {
				err = fmt.Errorf("--%s is empty; leave it out, or give it a value", given.Name)
			}
		})
		if err != nil {
			return exit.Usage(err)
		}
		if reflect.ValueOf(f.q.Filter).IsZero() && !f.q.All {
			return exit.Usage(errors.New("there is no filter; give one, or --all for all threads"))
		}
		return a.linked(c.Context(), func(ctx context.Context, l *link.Link) error { return a.bulk(ctx, l, &f) })
	}
	return c
}

// fill fills in the filter.
func (f *bulkFlags) fill(now time.Time) error {
	o := &f.q.Filter
	o.Status = perdure.Status(f.status)
	for i, to := range []*time.Time{&o.Updated, &o.UpdatedBefore, &o.Created, &o.CreatedBefore} {
		var err error
		if f.times[i] == "" {
			continue
		}
		if *to, err = parseTime(f.times[i], now); err != nil {
			return fmt.Errorf("--%s: %w", timesOf[i].name, err)
		}
	}
	if f.older != "" {
		d, err := api.ParseAge(f.older)
		if err == nil && !o.UpdatedBefore.IsZero() {
			err = errors.New("give it or --updated-before, not both")
		}
		if err != nil {
			return fmt.Errorf("--older: %w", err)
		}
		o.UpdatedBefore = now.Add(-d)
	}
	for _, text := range f.metadata.all {
		name, value, ok := strings.Cut(text, "=")
		if !ok {
			return fmt.Errorf("--metadata: %q is not NAME=VALUE", text)
		}
		if _, twice := o.Metadata[name]; twice {
			return fmt.Errorf("--metadata: %q is there twice", name)
		}
		if o.Metadata == nil {
			o.Metadata = map[string]string{}
		}
		o.Metadata[name] = value
	}
	return nil
}

// bulk plans a job, asks, starts it and waits for it.
func (a *app) bulk(ctx context.Context, l *link.Link, f *bulkFlags) error {
	plan, err := l.Client.PlanBulk(ctx, f.q)
	if err != nil {
		return err
	}
	if f.dryRun && a.term.JSON {
		return a.term.PrintJSON(plan)
	}
	what := string(f.q.Verb) + " " + terminal.Count(plan.Threads, "thread", "threads")
	if !a.term.JSON && (f.dryRun || !f.yes) {
		if err := a.planned(plan); err != nil {
			return err
		}
	}
	if plan.Archived > 0 {
		a.hint("the filter also fits %s in the archive, which it leaves there: %s lists them, perdure erase THREAD erases one, and perdure erase --user USER all of a user", terminal.Count(plan.Archived, "thread", "threads"), a.command("archived", ""))
	}
	switch {
	case f.dryRun:
		if f.q.Verb != perdure.BulkErase && plan.Threads > 0 {
			what += ", and skip those for which there is nothing to do"
		}
		a.hint("it would %s; nothing was done", what)
		return nil
	case plan.Threads == 0:
		a.hint("no thread matches; nothing was done")
		if a.term.JSON {
			return a.term.PrintJSON(plan)
		}
		return nil
	}
	if f.q.Verb == perdure.BulkErase {
		what += " for good"
	}
	if err := a.sure(ctx, f.yes, what); err != nil {
		return err
	}
	job, err := l.Client.StartBulk(ctx, f.q)
	if err != nil {
		return err
	}
	if f.detach {
		if a.term.JSON {
			return a.term.PrintJSON(job)
		}
		a.term.PrintName(job.ID)
		a.hint("follow it with %s", a.command("bulk show", "", job.ID))
		a.idle(ctx, l)
		return nil
	}
	return a.follows(ctx, l, job, plan.Threads)
}

// planned lists the first threads of a plan.
func (a *app) planned(plan *perdure.BulkPlan) error {
	if len(plan.First) == 0 {
		return nil
	}
	rows := [][]string{{"ID", "FLOW", "STATUS", "OWNER", "UPDATED", "TITLE"}}
	for _, t := range plan.First {
		rows = append(rows, []string{safe.Name(t.ID), t.Flow, cmp.Or(string(t.Status), "idle"), t.User, a.term.When(t.Updated), t.Title})
	}
	if err := a.term.Table(rows, render.StatusStyle); err != nil {
		return err
	}
	if more := plan.Threads - len(plan.First); more > 0 {
		a.term.Printf("and %d more\n", more)
	}
	return nil
}

// bulkEvery is how often a command looks at the job that it waits for.
const bulkEvery = 500 * time.Millisecond

// follows shows the progress of a job until it has ended.
func (a *app) follows(ctx context.Context, l *link.Link, job *perdure.Bulk, of int) error {
	defer l.WorkBulk(ctx)()
	if l.Runtime == nil || job.Verb == perdure.BulkRetry || job.Verb == perdure.BulkCancel {
		a.idle(ctx, l)
	}
	a.hint("job %s; it does not depend on this command", safe.Label(job.ID))
	told := ""
	for job.State == perdure.BulkRunning {
		if text := fmt.Sprintf("%d of %d done, %d skipped, %d failed", job.Done, of, job.Skipped, job.Failed); text != told && !a.term.JSON {
			told = text
			a.hint("%s", text)
		}
		select {
		case <-ctx.Done():
			a.hint("the job goes on; follow it with %s, stop it with %s", a.command("bulk show", "", job.ID), a.command("bulk stop", "", job.ID))
			return ctx.Err()
		case <-time.After(bulkEvery):
		}
		var err error
		if job, err = l.Client.Bulk(ctx, job.ID); err != nil {
			return err
		}
	}
	if a.term.JSON {
		if err := a.term.PrintJSON(job); err != nil {
			return err
		}
	} else if err := a.bulkJob(job); err != nil {
		return err
	}
	if job.Verb == perdure.BulkErase && !job.Dependents && slices.ContainsFunc(job.Errors, func(e perdure.BulkError) bool { return strings.Contains(e.Error, perdure.ErrPinned.Error()) }) {
		a.hint("--dependents erases forks and children too")
	}
	if job.Failed > 0 {
		return &exit.Error{Code: exit.Failed, Err: errors.New(terminal.Count(job.Failed, "thread", "threads") + " failed"), Next: a.command("bulk show", "", job.ID) + " says why"}
	}
	return nil
}

// bulkJob prints a job.
func (a *app) bulkJob(b *perdure.Bulk) error {
	a.term.Printf("job %s: %s, %s: %d done, %d skipped, %d failed\n", safe.Label(b.ID), safe.Label(string(b.Verb)), safe.Label(b.State), b.Done, b.Skipped, b.Failed)
	if b.Where != "" {
		a.term.Printf("  the files are in %s\n", safe.Cut(safe.Line(b.Where), a.term.Room(19)))
	}
	for _, e := range b.Errors {
		who := "the list of threads"
		if e.Thread != "" {
			who = safe.Label(e.Thread)
		}
		a.term.Printf("  %s\n", safe.Cut(who+": "+safe.Line(e.Error), a.term.Room(2)))
	}
	if b.State == perdure.BulkStopped {
		a.hint("continue it with %s", a.command("bulk resume", "", b.ID))
	}
	return nil
}

// bulks lists jobs.
func (a *app) bulks(list *api.BulkList) error {
	if len(list.Jobs) == 0 {
		a.hint("there are no bulk jobs")
		return nil
	}
	rows := [][]string{{"JOB", "VERB", "STATE", "DONE", "SKIPPED", "FAILED", "CREATED", "BY", "REASON"}}
	for _, b := range list.Jobs {
		rows = append(rows, []string{safe.Name(b.ID), string(b.Verb), b.State, fmt.Sprint(b.Done), fmt.Sprint(b.Skipped), fmt.Sprint(b.Failed), a.term.When(b.Created), b.By, b.Reason})
	}
	return a.term.Table(rows, render.StatusStyle)
}

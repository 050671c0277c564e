package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/api"
	"github.com/perdure/perdure/cli/internal/exit"
	"github.com/perdure/perdure/cli/internal/link"
	"github.com/perdure/perdure/client"
	"github.com/perdure/perdure/internal/safe"
	"github.com/perdure/perdure/internal/terminal"
	"github.com/spf13/cobra"
)

func eraseCommand(a *app) *cobra.Command {
	var in api.EraseThread
	var yes bool
	var u userErase
	c := &cobra.Command{
		Use:   "erase THREAD|--user USER",
		Short: "erase a thread, or everything of a user",
		Long: `Erase a thread and everything stored for it, for good. Its effects outside are not
undone. A thread that forks or children depend on can only be erased together
with them.

With --user, erase everything of a user: threads with forks and children, archived
threads, memory, rules, credentials, uploads, schedules, bulk jobs, and tokens. The
command shows how much there is and asks first. If it is interrupted, run it again to
continue. The receipt proves that the user was erased without saying who it was or what
was erased; perdure receipt verify checks it. The user's name may remain in threads of
others, for example as the person who answered an ask.`,
		Example: "  perdure erase trip-7\n  perdure erase trip-7 --dependents --yes --reason \"asked by the customer\"\n  perdure erase --user ada --dry-run\n  perdure erase --user ada -o receipt.json",
		Args:    arguments(0, 1),
		RunE: func(c *cobra.Command, args []string) error {
			switch byUser := c.Flags().Changed("user"); {
			case byUser == (len(args) == 1):
				return exit.Usage(errors.New("name a thread, or a user with --user"))
			case byUser && in.Dependents:
				return exit.Usage(errors.New("--dependents is for a thread; everything of a user goes"))
			case !byUser && (u.dryRun || u.output != ""):
				return exit.Usage(errors.New("--dry-run and --output are for --user"))
			case byUser:
				u.reason, u.yes = in.Reason, yes
				return a.linked(c.Context(), func(ctx context.Context, l *link.Link) error { return a.eraseUser(ctx, l, &u) })
			}
			in.Thread = args[0]
			return a.linked(c.Context(), func(ctx context.Context, l *link.Link) error {
				_, unread := l.Client.GetPage(ctx, in.Thread, perdure.RunPage{Limit: 1})
				if unread != nil && !canErase(unread) {
					return unread
				}
				err := a.sure(ctx, yes, "erase thread "+safe.Label(in.Thread)+" for good")
				if err != nil && errors.Is(unread, perdure.ErrNoThread) {
					return unread
				}
				if err != nil {
					return err
				}
				_, err = client.Do(ctx, l.Client, api.ThreadsErase, in)
				if errors.Is(err, perdure.ErrPinned) {
					return &exit.Error{Code: exit.Code(err), Err: err, Next: "--dependents erases them too"}
				}
				if err == nil && a.term.JSON {
					return a.term.PrintJSON(struct{}{})
				}
				return err
			})
		},
	}
	c.Flags().BoolVar(&in.Dependents, "dependents", false, "erase forks and children too")
	c.Flags().StringVar(&in.Reason, "reason", "", "why, for the record")
	c.Flags().BoolVar(&yes, "yes", false, "do not ask")
	c.Flags().StringVar(&u.user, "user", "", "erase everything of this user")
	c.Flags().BoolVar(&u.dryRun, "dry-run", false, "with --user: only show how much there is")
	c.Flags().StringVarP(&u.output, "output", "o", "", "with --user: file for the receipt; it must not exist")
	return c
}

// canErase reports whether there may be something to erase of a thread that cannot be
// read. If there is no thread, there may be the rest of one whose erase was killed.
func canErase(err error) bool {
	return errors.Is(err, perdure.ErrCorrupt) || errors.Is(err, perdure.ErrNewer) || errors.Is(err, perdure.ErrArchived) || errors.Is(err, perdure.ErrNoThread) || errors.Is(err, perdure.ErrErased)
}

// userErase is a request to erase a user.
type userErase struct {
	user, reason, output string
	dryRun, yes          bool
}

// userData says how much there is, or was, of a user.
func userData(n *perdure.UserData) string {
	var parts []string
	for _, c := range []struct {
		n         int
		one, many string
	}{
		{n.Threads, "thread", "threads"}, {n.Archived, "archived thread", "archived threads"}, {n.Memory, "memory", "memories"}, {n.Rules, "rule", "rules"},
		{n.Credentials, "credential", "credentials"}, {n.Uploads, "upload", "uploads"}, {n.Jobs, "bulk job", "bulk jobs"}, {n.Exports, "export", "exports"}, {n.Schedules, "schedule", "schedules"},
	} {
		if c.n > 0 {
			parts = append(parts, terminal.Count(c.n, c.one, c.many))
		}
	}
	if len(parts) == 0 {
		return "nothing"
	}
	return strings.Join(parts, ", ")
}

func (a *app) eraseUser(ctx context.Context, l *link.Link, u *userErase) error {
	if _, err := os.Lstat(u.output); u.output != "" && err == nil {
		return exit.Usage(fmt.Errorf("%s exists", u.output))
	}
	n, err := l.Client.UserData(ctx, u.user)
	if err != nil {
		return err
	}
	if u.dryRun {
		if a.term.JSON {
			return a.term.PrintJSON(n)
		}
		a.term.Printf("%s\n", userData(n))
		return nil
	}
	if err := a.sure(ctx, u.yes, fmt.Sprintf("erase everything of user %s for good: %s", safe.Label(u.user), userData(n))); err != nil {
		return err
	}
	var rc *perdure.Receipt
	var failed error
	erase := func(w io.Writer) error {
		if rc, failed = l.Client.EraseUser(ctx, u.user, perdure.EraseUserOptions{Reason: u.reason}); failed != nil {
			return failed
		}
		enc := json.NewEncoder(w)
		enc.SetIndent("", "  ")
		return enc.Encode(rc)
	}
	if u.output != "" {
		_, err = saveFile(u.output, erase) // a file that cannot be written is no reason to erase anything
	} else {
		err = erase(io.Discard)
	}
	switch {
	case failed != nil:
		if ctx.Err() == nil {
			a.hint("do it again to continue: %s", a.command("erase", "--user "+safe.Argument(u.user)))
		}
		return failed
	case err != nil && rc != nil:
		return &exit.Error{Code: exit.Code(err), Err: err, Next: "the user is erased; the receipt: " + a.command("receipt show", "", u.user)}
	case err != nil:
		return err
	}
	if a.term.JSON {
		return a.term.PrintJSON(rc)
	}
	a.term.Printf("erased: %s\n", userData(&rc.Erased))
	if u.output == "" {
		a.hint("the receipt: %s", a.command("receipt show", "", u.user))
	}
	return nil
}

func receiptCommand(a *app) *cobra.Command {
	show := operation(a, "show USER", "  perdure receipt show ada > receipt.json", api.UsersReceipt,
		func(a *app, rc *perdure.Receipt) error { return a.term.PrintJSON(rc) })
	verify := &cobra.Command{
		Use:   "verify FILE [EXPORT...]",
		Short: "check a receipt, and that exported threads were erased",
		Long: `Check that a receipt was not changed since its store signed it. Compare the key that
it prints with the one of the store. With exports, also check that each of them is of a
thread that was erased, and goes up to its last entry. No store or server is needed.
The command fails if something is wrong.`,
		Example: "  perdure receipt verify receipt.json\n  perdure receipt verify receipt.json trip-7.jsonl",
		Args:    arguments(1, -1),
		RunE:    func(_ *cobra.Command, args []string) error { return a.verifyReceipt(args[0], args[1:]) },
	}
	return group(&cobra.Command{
		Use:     "receipt",
		Short:   "show and check the receipts of erased users",
		Long:    "Show and check the receipts of erased users: see perdure erase --user.",
		Example: "  perdure receipt show ada > receipt.json\n  perdure receipt verify receipt.json",
	}, show, verify)
}

func (a *app) verifyReceipt(name string, exports []string) error {
	f, err := a.openFile(name)
	if err != nil {
		return err
	}
	defer f.Close()
	rc, err := perdure.VerifyReceipt(f)
	if err != nil { // what the receipt is, not how it was named
		return &exit.Error{Code: exit.Failed, Err: err}
	}
	for _, export := range exports {
		if err := covered(a, rc, export); err != nil {
			return err
		}
	}
	if a.term.JSON {
		return a.term.PrintJSON(rc)
	}
	a.term.Printf("%s: from %s to %s, %s\nsigned by %s\n", a.term.Style(terminal.Green, "erased"), rc.Begun.Format(time.RFC3339), rc.Ended.Format(time.RFC3339), userData(&rc.Erased), safe.Label(rc.Key))
	return nil
}

// covered returns an error unless an export is of a thread that a receipt is about.
func covered(a *app, rc *perdure.Receipt, export string) error {
	f, err := a.openFile(export)
	if err != nil {
		return err
	}
	defer f.Close()
	v, err := perdure.VerifyExport(f)
	if err != nil {
		return err
	}
	if !v.OK() || !rc.Covers(v.Head) {
		return &exit.Error{Code: exit.Failed, Err: fmt.Errorf("the receipt does not cover thread %s as it is in %s", safe.Label(v.Thread), safe.Label(export))}
	}
	return nil
}

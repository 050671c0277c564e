package cli

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/api"
	"github.com/perdure/perdure/cli/internal/exit"
	"github.com/perdure/perdure/cli/internal/link"
	"github.com/perdure/perdure/client"
	"github.com/perdure/perdure/internal/safe"
	"github.com/perdure/perdure/internal/terminal"
	"github.com/spf13/cobra"
)

func exportCommand(a *app) *cobra.Command {
	var to string
	var in api.ExportThread
	c := &cobra.Command{
		Use:     "export THREAD",
		Short:   api.ThreadsExport.Title,
		Long:    "Export a thread as JSON lines, to the standard output or a file. The file can be\nverified without a store, and imported elsewhere.",
		Example: "  perdure export trip-7 -o trip-7.jsonl\n  perdure export trip-7 --redact | gzip > trip-7.jsonl.gz",
		Args:    arguments(1, 1),
		RunE: func(c *cobra.Command, args []string) error {
			in.Thread = args[0]
			return a.linked(c.Context(), func(ctx context.Context, l *link.Link) error { return a.export(ctx, l, in, to) })
		},
	}
	c.Flags().StringVarP(&to, "output", "o", "", "file to write, which must not exist; - is the standard output")
	c.Flags().BoolVar(&in.Redact, "redact", false, "leave out the contents of entries; the file can still be verified")
	return c
}

func (a *app) export(ctx context.Context, l *link.Link, in api.ExportThread, to string) (err error) {
	body, err := client.Open(ctx, l.Client, api.ThreadsExport, in, nil)
	if err != nil {
		return err
	}
	defer body.Close()
	if to == "-" {
		to = ""
	}
	if to == "" && terminal.IsTerminal(a.term.Out) {
		return a.exportToTerminal(body)
	}
	if to == "" {
		_, err = io.Copy(a.term.Out, body)
		return err
	}
	n, err := saveFile(to, func(w io.Writer) error {
		_, err := io.Copy(w, body)
		return err
	})
	if err != nil {
		return err
	}
	if a.term.JSON {
		return a.term.PrintJSON(map[string]any{"thread": in.Thread, "file": to, "bytes": n})
	}
	a.hint("wrote %d bytes to %s; check the file with perdure verify %s", n, to, safe.Quote(to))
	return nil
}

// exportToTerminal prints an export for people: its lines mean the same as those
// in a file, but nothing in them can control the terminal.
func (a *app) exportToTerminal(body io.Reader) error {
	lines := bufio.NewReader(body)
	for {
		line, err := lines.ReadString('\n')
		if _, err := io.WriteString(a.term.Out, safe.JSON(line)); err != nil {
			return err
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

func importCommand(a *app) *cobra.Command {
	var in perdure.ImportOptions
	c := &cobra.Command{
		Use:     "import FILE",
		Short:   api.ThreadsImport.Title,
		Long:    "Create a thread from an export; - is the standard input. Runs that were active are\npaused until you resume them. Questions that people answered there are asked again\nhere, unless the file is signed by a trusted key, such as one that --trust-key names.\nperdure verify FILE shows the key.",
		Example: "  perdure import trip-7.jsonl\n  gunzip < trip-7.jsonl.gz | perdure import - --as trip-8",
		Args:    arguments(1, 1),
		RunE: func(c *cobra.Command, args []string) error {
			rd, err := a.openFile(args[0])
			if err != nil {
				return err
			}
			defer rd.Close()
			return a.linked(c.Context(), func(ctx context.Context, l *link.Link) error {
				id, err := l.Client.Import(ctx, rd, in)
				if errors.Is(err, perdure.ErrExists) {
					return &exit.Error{Code: exit.Code(err), Err: err, Next: "give it another id with --as"}
				}
				if err != nil {
					return err
				}
				if a.term.JSON {
					return a.term.PrintJSON(map[string]string{"thread": id})
				}
				a.term.PrintName(id)
				return nil
			})
		},
	}
	c.Flags().StringVar(&in.As, "as", "", "id of the new thread; by default its original id")
	c.Flags().StringSliceVar(&in.Trust, "trust-key", nil, "public `KEY` to trust for this file, besides that of this store")
	return c
}

// openFile opens a file for reading; - is the standard input.
func (a *app) openFile(name string) (io.ReadCloser, error) {
	if name == "-" {
		return io.NopCloser(a.term.In), nil
	}
	f, err := os.Open(name)
	if errors.Is(err, os.ErrNotExist) {
		return nil, &exit.Error{Code: exit.NotFound, Err: err}
	}
	if info, wrong := f.Stat(); wrong == nil && info.IsDir() {
		f.Close()
		return nil, exit.Usage(fmt.Errorf("%s is a folder, not an export", name))
	}
	return f, err
}

func verifyCommand(a *app) *cobra.Command {
	return &cobra.Command{
		Use:     "verify THREAD|FILE",
		Short:   api.ThreadsVerify.Title + ", or that of an export",
		Long:    "Check a thread's audit chain: that no entry was changed, removed or moved. An export\nis checked without a store or server. The command fails if something is wrong.\n\nThe argument is a file if it ends in .jsonl or contains a slash. Otherwise it is a\nthread if there is one with that id, or else a file.\n\nTo detect that someone rewrote all of it, compare the head with one that you keep\nelsewhere.",
		Example: "  perdure verify trip-7\n  perdure verify trip-7.jsonl",
		Args:    arguments(1, 1),
		RunE: func(c *cobra.Command, args []string) error {
			if filepath.Ext(args[0]) == ".jsonl" || strings.ContainsAny(args[0], `/`+string(filepath.Separator)) {
				return a.verifyFile(args[0])
			}
			err := a.linked(c.Context(), func(ctx context.Context, l *link.Link) error {
				v, err := l.Client.Verify(ctx, args[0])
				if err != nil {
					return err
				}
				return a.verified(v, a.command("fork", fmt.Sprintf("--at %d", v.Good), v.Thread))
			})
			if _, missing := os.Stat(args[0]); missing == nil && (errors.Is(err, perdure.ErrNoThread) || exit.Code(err) == exit.Unavailable) {
				return a.verifyFile(args[0])
			}
			return err
		},
	}
}

// verifyFile checks an export.
func (a *app) verifyFile(name string) error {
	f, err := a.openFile(name)
	if err != nil {
		return err
	}
	defer f.Close()
	v, err := perdure.VerifyExport(f)
	if err != nil {
		return err
	}
	return a.verified(v, "")
}

// verified reports the result of a check, and what to do if something is wrong.
func (a *app) verified(v *perdure.Verification, do string) error {
	if a.term.JSON {
		if err := a.term.PrintJSON(v); err != nil {
			return err
		}
	} else if v.OK() {
		a.term.Printf("%s: thread %s, %d entries and %d blobs are as they were written\nhead %s\n", a.term.Style(terminal.Green, "good"), safe.Label(v.Thread), v.Good, v.Blobs, safe.Label(v.Head))
	} else if v.Good == 0 {
		a.term.Printf("%s: none of it is intact\n%s\n", a.term.Style(terminal.Red, "damaged"), a.term.Framed("  ", v.Problem))
	} else {
		a.term.Printf("%s: thread %s is intact up to entry %d of %d\n%s\n", a.term.Style(terminal.Red, "damaged"), safe.Label(v.Thread), v.Good, v.Entries, a.term.Framed("  ", v.Problem))
		if do != "" {
			a.hint("continue from there with %s", do)
		}
	}
	if !v.OK() {
		return exit.Quiet(exit.Failed)
	}
	if v.Signer != "" && !a.term.JSON {
		a.term.Printf("signed by %s\n", safe.Label(v.Signer))
	}
	return nil
}

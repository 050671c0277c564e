// Package filetool does what models ask of an agent's files: list, read, write,
// edit, delete, glob and grep. Its results are texts for a model; a mistake of
// the model is a result that says what to do instead. It may import perdure and
// agent/files.
package filetool

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/agent/files"
)

// Tools works on the files of one backend.
//
// A step may change files outside the thread's state again when the process dies
// before the step is recorded. Edit and Delete are made for that: what they find
// is recorded first, and the change that follows recognises itself if it is
// already done. They use verbs, unless all files are in the state.
type Tools struct {
	fs   files.FS
	leaf bool // every change commits with the tool's own step
}

// New returns the tools for a backend.
func New(fs files.FS) Tools { return Tools{fs, fs == files.State()} }

// UsesVerbs reports whether Edit and Delete call verbs.
func (t Tools) UsesVerbs() bool { return !t.leaf }

// Result is what a model reads.
type Result struct {
	Text  string `json:"text"`
	Error bool   `json:"error,omitempty"` // Text says what went wrong
}

// Args are the arguments of a tool.
type Args interface {
	// CleanPath brings the path among them into the form in which it is used. A
	// bad one stays as it is: the tool says what is wrong with it.
	CleanPath()
}

func cleanArg(clean func(string) (string, error), p *string) {
	if c, err := clean(*p); err == nil {
		*p = c
	}
}

// step does a part of a change that is recorded by itself, unless the whole is.
func (t Tools) step(ctx context.Context, name string, fn func(ctx context.Context) (Result, error)) (Result, error) {
	if t.leaf {
		return fn(ctx)
	}
	return perdure.Step(ctx, name, fn)
}

// maxOutput is the size of a result, in bytes. It is less than the output limit
// of tools, which would cut from the middle.
const maxOutput = 30_000

// explain turns an error that the model can do something about into a result,
// which is not tried again.
func explain(err error) (Result, error) {
	for _, own := range []error{files.ErrNotFound, files.ErrPath, files.ErrNotText} {
		if errors.Is(err, own) {
			text := strings.TrimPrefix(err.Error(), "agent: ")
			if own == files.ErrNotFound {
				text += ". Use ls or glob to see which files there are."
			}
			return Result{text, true}, nil
		}
	}
	return Result{}, err
}

func mistake(format string, args ...any) (Result, error) {
	return Result{fmt.Sprintf(format, args...), true}, nil
}

// ListArgs are the arguments of List.
type ListArgs struct {
	Path string `json:"path,omitempty" jsonschema:"path of the folder, such as /notes; the root if it is left out"`
}

// CleanPath implements Args.
func (a *ListArgs) CleanPath() { cleanArg(files.Clean, &a.Path) }

// List lists what is directly in a folder.
func (t Tools) List(ctx context.Context, a ListArgs) (Result, error) {
	dir, err := files.Clean(a.Path)
	if err != nil {
		return explain(err)
	}
	all, err := t.fs.List(ctx, dir)
	if err != nil {
		return explain(err)
	}
	if len(all) == 0 {
		if dir == "/" {
			return Result{Text: "There are no files yet."}, nil
		}
		if _, err := t.fs.Read(ctx, dir); err == nil || errors.Is(err, files.ErrNotText) {
			return mistake("%s is a file, not a folder. Use read_file to read it.", dir)
		}
		return mistake("There is no folder %s, or nothing in it. Use ls without a path to begin at the root.", dir)
	}
	var out strings.Builder
	for i, f := range all {
		if out.Len() > maxOutput {
			fmt.Fprintf(&out, "(%d more; use glob with a pattern to see them)\n", len(all)-i)
			break
		}
		if f.Dir {
			fmt.Fprintf(&out, "%s/\n", f.Path)
			continue
		}
		fmt.Fprintf(&out, "%s  %s", f.Path, howMany(f.Size, "byte"))
		if !f.Modified.IsZero() {
			fmt.Fprintf(&out, ", modified %s", f.Modified.UTC().Format(time.DateTime))
		}
		out.WriteString("\n")
	}
	return Result{Text: strings.TrimSuffix(out.String(), "\n")}, nil
}

// ReadArgs are the arguments of Read.
type ReadArgs struct {
	Path   string `json:"path" jsonschema:"path of the file, such as /notes/plan.md"`
	Offset int    `json:"offset,omitempty" jsonschema:"number of the first line to read, from 1; the first one if it is left out" schema:"min=0"`
	Limit  int    `json:"limit,omitempty" jsonschema:"how many lines to read at most; 1000 if it is left out" schema:"min=0"`
}

// CleanPath implements Args.
func (a *ReadArgs) CleanPath() { cleanArg(files.CleanFile, &a.Path) }

// maxLine is how many bytes of a line Read shows.
const maxLine = 2000

// Read shows lines of a file with their numbers.
func (t Tools) Read(ctx context.Context, a ReadArgs) (Result, error) {
	p, err := files.CleanFile(a.Path)
	if err != nil {
		return explain(err)
	}
	f, err := t.fs.Read(ctx, p)
	if err != nil {
		return explain(err)
	}
	lines := splitLines(f.Text)
	first := max(a.Offset, 1)
	switch {
	case len(lines) == 0:
		return Result{Text: "(the file is empty)"}, nil
	case first > len(lines):
		return mistake("%s has only %s; the offset %d is behind its end.", p, howMany(len(lines), "line"), first)
	}
	limit := cmp.Or(max(a.Limit, 0), 1000)
	var out strings.Builder
	next := first
	for ; next <= len(lines) && next-first < limit; next++ {
		line := fmt.Sprintf("%6d\t%s\n", next, cutLine(lines[next-1], maxLine))
		if out.Len() > 0 && out.Len()+len(line) > maxOutput {
			break
		}
		out.WriteString(line)
	}
	if next <= len(lines) {
		fmt.Fprintf(&out, "(lines %d to %d of %d; read on with offset %d)\n", first, next-1, len(lines), next)
	}
	return Result{Text: strings.TrimSuffix(out.String(), "\n")}, nil
}

// splitLines returns the lines of a text without their ends.
func splitLines(text string) []string {
	if text == "" {
		return nil
	}
	lines := strings.Split(strings.TrimSuffix(text, "\n"), "\n")
	for i, l := range lines {
		lines[i] = strings.TrimSuffix(l, "\r")
	}
	return lines
}

// cutLine returns the beginning of a line that is too long to be shown whole.
func cutLine(line string, limit int) string {
	if len(line) <= limit {
		return line
	}
	end := limit
	for !utf8.RuneStart(line[end]) {
		end--
	}
	return fmt.Sprintf("%s… (the line has %d more bytes)", line[:end], len(line)-end)
}

func howMany(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

// WriteArgs are the arguments of Write.
type WriteArgs struct {
	Path string `json:"path" jsonschema:"path of the file, such as /notes/plan.md"`
	Text string `json:"text" jsonschema:"the whole text of the file"`
}

// CleanPath implements Args.
func (a *WriteArgs) CleanPath() { cleanArg(files.CleanFile, &a.Path) }

// Write writes a whole file.
func (t Tools) Write(ctx context.Context, a WriteArgs) (Result, error) {
	p, err := files.CleanFile(a.Path)
	if err == nil {
		err = t.fs.Write(ctx, p, a.Text)
	}
	if err != nil {
		return explain(err)
	}
	return Result{Text: fmt.Sprintf("Wrote %s: %s, %s.", p, howMany(len(splitLines(a.Text)), "line"), howMany(len(a.Text), "byte"))}, nil
}

// DeleteArgs are the arguments of Delete.
type DeleteArgs struct {
	Path string `json:"path" jsonschema:"path of the file, such as /notes/plan.md"`
}

// CleanPath implements Args.
func (a *DeleteArgs) CleanPath() { cleanArg(files.CleanFile, &a.Path) }

// Delete deletes a file.
func (t Tools) Delete(ctx context.Context, a DeleteArgs) (Result, error) {
	p, err := files.CleanFile(a.Path)
	if err != nil {
		return explain(err)
	}
	// A removal that happened and was not recorded must not be reported as a
	// file that does not exist.
	found := files.InState(t.fs, p)
	if !found {
		out, err := perdure.Step(ctx, "look", func(ctx context.Context) (Result, error) {
			if _, err := t.fs.Read(ctx, p); err != nil && !errors.Is(err, files.ErrNotText) {
				return explain(err)
			}
			return Result{}, nil
		})
		if err != nil || out.Error {
			return out, err
		}
	}
	return t.step(ctx, "delete", func(ctx context.Context) (Result, error) {
		if err := t.fs.Remove(ctx, p); err != nil && (found || !errors.Is(err, files.ErrNotFound)) {
			return explain(err)
		}
		return Result{Text: fmt.Sprintf("Deleted %s.", p)}, nil
	})
}

package agent

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/perdure/perdure"
)

// FileTools returns tools that work on files: ls, read_file, write_file,
// edit_file, delete_file, glob and grep. They are [Serial], so that the calls of
// one message see what those before them did.
//
// What a step does to files outside the thread's state it may do again when the
// process dies before the step is recorded. The tools are made for that: what an
// edit or a removal finds is recorded first, and the change that follows
// recognises itself when it is already done.
//
// Paths are normalised before anything looks at a call, so that an approval's
// predicate sees the path that is used, always from the root. A predicate of
// grep, glob or ls sees a folder; grep and glob also look into what is below it.
func FileTools(f Files) []Tool {
	_, leaf := f.(stateFiles)
	t := fileTools{f, leaf}
	change := []ToolOption{Serial()}
	if !leaf {
		change = append(change, UsesVerbs())
	}
	change = slices.Clip(change)
	return []Tool{
		NewTool("ls", "Lists the files and folders that are directly in a folder.", t.ls, Serial(), at(cleanPath, func(a *lsArgs) *string { return &a.Path })),
		NewTool("read_file", "Reads lines of a text file. Each line has its number and a tab before it, which are not part of the file.", t.read, Serial(), at(cleanFile, func(a *readFileArgs) *string { return &a.Path })),
		NewTool("write_file", "Writes a whole text file: makes it, with the folders it is in, or replaces what it was. To change a part of a file use edit_file.", t.write, Serial(), at(cleanFile, func(a *writeFileArgs) *string { return &a.Path })),
		NewTool("edit_file", "Replaces a piece of a text file. The old text has to be exactly as it is in the file, with all spaces and line ends and without line numbers, and has to be there once, unless all is true.", t.edit, append(change, at(cleanFile, func(a *editFileArgs) *string { return &a.Path }))...),
		NewTool("delete_file", "Deletes a file.", t.remove, append(change, at(cleanFile, func(a *deleteFileArgs) *string { return &a.Path }))...),
		NewTool("glob", "Finds files by their paths. In the pattern * stands for any part of a name, ** for any number of folders, ? for one character, {a,b} for either.", t.glob, Serial(), at(cleanPath, func(a *globArgs) *string {
			if strings.HasPrefix(a.Pattern, "/") {
				a.Path = "/" // the pattern is from the root, whatever it says
			}
			return &a.Path
		})),
		NewTool("grep", "Finds lines in files by a regular expression (RE2) or a literal text, and shows each with its path and number.", t.grep, Serial(), at(cleanPath, func(a *grepArgs) *string { return &a.Path })),
	}
}

// at normalises the path among the arguments of a tool. One that is none stays
// as it is: the tool says what is wrong with it, and does nothing.
func at[A any](clean func(string) (string, error), path func(*A) *string) ToolOption {
	return Normalize(func(args A) (A, error) {
		p := path(&args)
		if c, err := clean(*p); err == nil {
			*p = c
		}
		return args, nil
	})
}

type fileTools struct {
	files Files
	leaf  bool // every change commits with the tool's own step
}

// step does a part of a change that is recorded by itself, unless the whole is.
func (t fileTools) step(ctx context.Context, name string, fn func(ctx context.Context) (Output, error)) (Output, error) {
	if t.leaf {
		return fn(ctx)
	}
	return perdure.Step(ctx, name, fn)
}

// fileOutput is how much text a tool of files returns, in bytes. It is less
// than the output limit of tools, which would cut from the middle.
const fileOutput = 30_000

// fileMistake makes an error that the model can do something about an output,
// which is not tried again.
func fileMistake(err error) (Output, error) {
	for _, own := range []error{ErrNoFile, ErrPath, ErrNotText} {
		if errors.Is(err, own) {
			text := strings.TrimPrefix(err.Error(), "agent: ")
			if own == ErrNoFile {
				text += ". Use ls or glob to see which files there are."
			}
			return Output{Text: text, Error: true}, nil
		}
	}
	return Output{}, err
}

func sayMistake(format string, args ...any) (Output, error) {
	return Output{Text: fmt.Sprintf(format, args...), Error: true}, nil
}

type lsArgs struct {
	Path string `json:"path,omitempty" jsonschema:"path of the folder, such as /notes; the root if it is left out"`
}

func (t fileTools) ls(ctx context.Context, a lsArgs) (Output, error) {
	dir, err := cleanPath(a.Path)
	if err != nil {
		return fileMistake(err)
	}
	all, err := t.files.List(ctx, dir)
	if err != nil {
		return fileMistake(err)
	}
	if len(all) == 0 {
		if dir == "/" {
			return Output{Text: "There are no files yet."}, nil
		}
		if _, err := t.files.Read(ctx, dir); err == nil || errors.Is(err, ErrNotText) {
			return sayMistake("%s is a file, not a folder. Use read_file to read it.", dir)
		}
		return sayMistake("There is no folder %s, or nothing in it. Use ls without a path to begin at the root.", dir)
	}
	var out strings.Builder
	for i, f := range all {
		if out.Len() > fileOutput {
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
	return Output{Text: strings.TrimSuffix(out.String(), "\n")}, nil
}

type readFileArgs struct {
	Path   string `json:"path" jsonschema:"path of the file, such as /notes/plan.md"`
	Offset int    `json:"offset,omitempty" jsonschema:"number of the first line to read, from 1; the first one if it is left out" schema:"min=0"`
	Limit  int    `json:"limit,omitempty" jsonschema:"how many lines to read at most; 1000 if it is left out" schema:"min=0"`
}

// lineOutput is how many bytes of a line are shown.
const lineOutput = 2000

func (t fileTools) read(ctx context.Context, a readFileArgs) (Output, error) {
	p, err := cleanFile(a.Path)
	if err != nil {
		return fileMistake(err)
	}
	f, err := t.files.Read(ctx, p)
	if err != nil {
		return fileMistake(err)
	}
	lines := linesOf(f.Text)
	first := max(a.Offset, 1)
	switch {
	case len(lines) == 0:
		return Output{Text: "(the file is empty)"}, nil
	case first > len(lines):
		return sayMistake("%s has only %s; the offset %d is behind its end.", p, howMany(len(lines), "line"), first)
	}
	limit := a.Limit
	if limit <= 0 {
		limit = 1000
	}
	var out strings.Builder
	next := first
	for ; next <= len(lines) && next-first < limit; next++ {
		line := fmt.Sprintf("%6d\t%s\n", next, cutLine(lines[next-1], lineOutput))
		if out.Len() > 0 && out.Len()+len(line) > fileOutput {
			break
		}
		out.WriteString(line)
	}
	if next <= len(lines) {
		fmt.Fprintf(&out, "(lines %d to %d of %d; read on with offset %d)\n", first, next-1, len(lines), next)
	}
	return Output{Text: strings.TrimSuffix(out.String(), "\n")}, nil
}

// linesOf returns the lines of a text without their ends.
func linesOf(text string) []string {
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

type writeFileArgs struct {
	Path string `json:"path" jsonschema:"path of the file, such as /notes/plan.md"`
	Text string `json:"text" jsonschema:"the whole text of the file"`
}

func (t fileTools) write(ctx context.Context, a writeFileArgs) (Output, error) {
	p, err := cleanFile(a.Path)
	if err != nil {
		return fileMistake(err)
	}
	if err := t.files.Write(ctx, p, a.Text); err != nil {
		return fileMistake(err)
	}
	return Output{Text: fmt.Sprintf("Wrote %s: %s, %s.", p, howMany(len(linesOf(a.Text)), "line"), howMany(len(a.Text), "byte"))}, nil
}

type deleteFileArgs struct {
	Path string `json:"path" jsonschema:"path of the file, such as /notes/plan.md"`
}

func (t fileTools) remove(ctx context.Context, a deleteFileArgs) (Output, error) {
	p, err := cleanFile(a.Path)
	if err != nil {
		return fileMistake(err)
	}
	done := Output{Text: fmt.Sprintf("Deleted %s.", p)}
	// A removal that happened and was not recorded must not be told as a file
	// that is not there.
	found := commitsWithStep(t.files, p)
	if !found {
		out, err := perdure.Step(ctx, "look", func(ctx context.Context) (Output, error) {
			if _, err := t.files.Read(ctx, p); err != nil && !errors.Is(err, ErrNotText) {
				return fileMistake(err)
			}
			return Output{}, nil
		})
		if err != nil || out.Error {
			return out, err
		}
	}
	return t.step(ctx, "delete", func(ctx context.Context) (Output, error) {
		if err := t.files.Remove(ctx, p); err != nil && (found || !errors.Is(err, ErrNoFile)) {
			return fileMistake(err)
		}
		return done, nil
	})
}

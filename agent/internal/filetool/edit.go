package filetool

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/agent/files"
)

// EditArgs are the arguments of Edit.
type EditArgs struct {
	Path string `json:"path" jsonschema:"path of the file, such as /notes/plan.md"`
	Old  string `json:"old" jsonschema:"the text that is replaced, exactly as it is in the file" schema:"minlen=1"`
	New  string `json:"new" jsonschema:"the text that takes its place; an empty one removes it"`
	All  bool   `json:"all,omitempty" jsonschema:"replace it at every place, not only if there is one"`
}

// CleanPath implements Args.
func (a *EditArgs) CleanPath() { cleanArg(files.CleanFile, &a.Path) }

// editPlan is what an edit finds and will do. When the change is made, the sums
// show whether it already has been.
type editPlan struct {
	Before string `json:"before,omitempty"`
	After  string `json:"after,omitempty"`
	Output Result `json:"output"`
}

func textSum(text string) string {
	sum := sha256.Sum256([]byte(text))
	return hex.EncodeToString(sum[:])
}

// Edit replaces a piece of a file.
func (t Tools) Edit(ctx context.Context, a EditArgs) (Result, error) {
	p, err := files.CleanFile(a.Path)
	if err != nil {
		return explain(err)
	}
	a.Path = p
	if files.InState(t.fs, p) {
		return t.step(ctx, "edit", func(ctx context.Context) (Result, error) {
			plan, err := t.planEdit(ctx, a)
			if err == nil && !plan.Output.Error {
				err = files.Replace(ctx, t.fs, p, a.Old, a.New)
			}
			if err != nil {
				return explain(err)
			}
			return plan.Output, nil
		})
	}
	plan, err := perdure.Step(ctx, "look", func(ctx context.Context) (editPlan, error) { return t.planEdit(ctx, a) })
	if err != nil || plan.Output.Error {
		return plan.Output, err
	}
	return perdure.Step(ctx, "edit", func(ctx context.Context) (Result, error) {
		f, err := t.fs.Read(ctx, p)
		if err != nil && !errors.Is(err, files.ErrNotFound) {
			return explain(err)
		}
		sum := textSum(f.Text)
		switch {
		case err == nil && sum == plan.Before:
			err = files.Replace(ctx, t.fs, p, a.Old, a.New)
		case err == nil && sum == plan.After: // an earlier start of this step did it
		default:
			return mistake("%s was changed by somebody else meanwhile. Read it again before you edit it.", p)
		}
		if err != nil {
			return explain(err)
		}
		return plan.Output, nil
	})
}

// planEdit finds out what an edit has to do. Mistakes of the model are its output.
func (t Tools) planEdit(ctx context.Context, a EditArgs) (editPlan, error) {
	f, err := t.fs.Read(ctx, a.Path)
	if err != nil {
		out, err := explain(err)
		return editPlan{Output: out}, err
	}
	if why := checkEdit(f.Text, a); why != "" {
		return editPlan{Output: Result{why, true}}, nil
	}
	lines := lineNumbersOf(f.Text, a.Old)
	n := strings.Count(f.Text, a.Old)
	if size := len(f.Text) + n*(len(a.New)-len(a.Old)); size > files.MaxSize {
		return editPlan{Output: Result{fmt.Sprintf("%s would have %d bytes, and %d are allowed.", a.Path, size, files.MaxSize), true}}, nil
	}
	text := fmt.Sprintf("Replaced %s in %s, at %s.", howMany(n, "place"), a.Path, lines)
	return editPlan{textSum(f.Text), textSum(strings.ReplaceAll(f.Text, a.Old, a.New)), Result{Text: text}}, nil
}

// checkEdit returns why an edit cannot be made, and what the model can do
// instead.
func checkEdit(text string, a EditArgs) string {
	switch {
	case a.Old == "":
		return "The old text is empty. Give the text that is to be replaced; to write a whole file use write_file."
	case a.Old == a.New:
		return "The old text and the new one are the same; nothing was changed."
	}
	at := strings.Index(text, a.Old)
	if at < 0 {
		return fmt.Sprintf("The old text is not in %s; nothing was changed. %s", a.Path, guessWhyMissing(text, a.Old))
	}
	if !a.All && strings.Contains(text[at+1:], a.Old) {
		n := strings.Count(text, a.Old)
		if n == 1 {
			return fmt.Sprintf("The old text matches more than once in %s, overlapping at %s; nothing was changed. Give more of the text around the one you mean.", a.Path, lineNumbersOf(text, a.Old))
		}
		return fmt.Sprintf("The old text matches %d times in %s, at %s; nothing was changed. Give more of the text around the one you mean, or set all to true to replace every one.", n, a.Path, lineNumbersOf(text, a.Old))
	}
	return ""
}

var numbered = regexp.MustCompile(`(?m)^ *[0-9]+\t`)

// guessWhyMissing guesses why a text does not match.
func guessWhyMissing(text, old string) string {
	squeeze := func(s string) string { return strings.Join(strings.Fields(s), " ") }
	unnumbered := numbered.ReplaceAllString(old, "")
	switch {
	case unnumbered != old && unnumbered != "" && strings.Contains(text, unnumbered):
		return "It is there without the line numbers of read_file, which are not part of the file."
	case strings.Contains(text, "\r\n") && strings.Contains(strings.ReplaceAll(text, "\r\n", "\n"), strings.ReplaceAll(old, "\r\n", "\n")):
		return `The lines of the file end with \r\n; write them so in the old text.`
	case squeeze(old) != "" && strings.Contains(squeeze(text), squeeze(old)):
		return "It is there with other spaces or line ends; read the lines again and copy them exactly."
	}
	return "Read the file again and copy the text exactly."
}

// lineNumbersOf returns the numbers of the lines in which a text begins.
func lineNumbersOf(text, old string) string {
	var lines []string
	line, rest, more := 1, text, 0
	for {
		i := strings.Index(rest, old)
		if i < 0 {
			break
		}
		line += strings.Count(rest[:i], "\n")
		switch at := strconv.Itoa(line); {
		case len(lines) > 0 && lines[len(lines)-1] == at: // named already
		case len(lines) < 10:
			lines = append(lines, at)
		default:
			more++
		}
		line += strings.Count(old, "\n")
		rest = rest[i+len(old):]
	}
	if len(lines) == 1 {
		return "line " + lines[0]
	}
	s := "lines " + strings.Join(lines, ", ")
	if more > 0 {
		s += fmt.Sprintf(" and %d more", more)
	}
	return s
}

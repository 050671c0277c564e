package agent

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
)

// replacer is what backends are that replace texts for less than a new text.
type replacer interface {
	replace(ctx context.Context, path, old, new string) error
}

// replaceAll replaces every old by new in a file.
func replaceAll(ctx context.Context, f Files, p, old, new string) error {
	if r, ok := f.(replacer); ok {
		return r.replace(ctx, p, old, new)
	}
	file, err := f.Read(ctx, p)
	if err != nil {
		return err
	}
	return f.Write(ctx, p, strings.ReplaceAll(file.Text, old, new))
}

type editFileArgs struct {
	Path string `json:"path" jsonschema:"path of the file, such as /notes/plan.md"`
	Old  string `json:"old" jsonschema:"the text that is replaced, exactly as it is in the file" schema:"minlen=1"`
	New  string `json:"new" jsonschema:"the text that takes its place; an empty one removes it"`
	All  bool   `json:"all,omitempty" jsonschema:"replace it at every place, not only if there is one"`
}

// editPlan is what an edit finds and will do. The sums tell, when the change is
// made, whether it has already been.
type editPlan struct {
	Before string `json:"before,omitempty"`
	After  string `json:"after,omitempty"`
	Output Output `json:"output"`
}

func fileSum(text string) string {
	sum := sha256.Sum256([]byte(text))
	return hex.EncodeToString(sum[:])
}

func (t fileTools) edit(ctx context.Context, a editFileArgs) (Output, error) {
	p, err := cleanFile(a.Path)
	if err != nil {
		return fileMistake(err)
	}
	a.Path = p
	if commitsWithStep(t.files, p) {
		return t.step(ctx, "edit", func(ctx context.Context) (Output, error) {
			plan, err := t.plan(ctx, a)
			if err == nil && !plan.Output.Error {
				err = replaceAll(ctx, t.files, p, a.Old, a.New)
			}
			if err != nil {
				return fileMistake(err)
			}
			return plan.Output, nil
		})
	}
	plan, err := perdure.Step(ctx, "look", func(ctx context.Context) (editPlan, error) { return t.plan(ctx, a) })
	if err != nil || plan.Output.Error {
		return plan.Output, err
	}
	return perdure.Step(ctx, "edit", func(ctx context.Context) (Output, error) {
		f, err := t.files.Read(ctx, p)
		if err != nil && !errors.Is(err, ErrNoFile) {
			return fileMistake(err)
		}
		sum := fileSum(f.Text)
		switch {
		case err == nil && sum == plan.Before:
			err = replaceAll(ctx, t.files, p, a.Old, a.New)
		case err == nil && sum == plan.After: // an earlier start of this step did it
		default:
			return sayMistake("%s was changed by somebody else meanwhile. Read it again before you edit it.", p)
		}
		if err != nil {
			return fileMistake(err)
		}
		return plan.Output, nil
	})
}

// plan looks what an edit has to do. Mistakes of the model are its output.
func (t fileTools) plan(ctx context.Context, a editFileArgs) (editPlan, error) {
	f, err := t.files.Read(ctx, a.Path)
	if err != nil {
		out, err := fileMistake(err)
		return editPlan{Output: out}, err
	}
	if why := checkEdit(f.Text, a); why != "" {
		return editPlan{Output: Output{Text: why, Error: true}}, nil
	}
	lines := placesOf(f.Text, a.Old)
	n := strings.Count(f.Text, a.Old)
	if size := len(f.Text) + n*(len(a.New)-len(a.Old)); size > MaxFile {
		return editPlan{Output: Output{Text: fmt.Sprintf("%s would have %d bytes, and %d are allowed.", a.Path, size, MaxFile), Error: true}}, nil
	}
	text := fmt.Sprintf("Replaced %s in %s, at %s.", howMany(n, "place"), a.Path, lines)
	return editPlan{fileSum(f.Text), fileSum(strings.ReplaceAll(f.Text, a.Old, a.New)), Output{Text: text}}, nil
}

// checkEdit says why an edit is none, and what the model can do instead.
func checkEdit(text string, a editFileArgs) string {
	switch {
	case a.Old == "":
		return "The old text is empty. Give the text that is to be replaced; to write a whole file use write_file."
	case a.Old == a.New:
		return "The old text and the new one are the same; nothing was changed."
	}
	at := strings.Index(text, a.Old)
	if at < 0 {
		return fmt.Sprintf("The old text is not in %s; nothing was changed. %s", a.Path, whyNot(text, a.Old))
	}
	if !a.All && strings.Contains(text[at+1:], a.Old) {
		n := strings.Count(text, a.Old)
		if n == 1 {
			return fmt.Sprintf("The old text matches more than once in %s, overlapping at %s; nothing was changed. Give more of the text around the one you mean.", a.Path, placesOf(text, a.Old))
		}
		return fmt.Sprintf("The old text matches %d times in %s, at %s; nothing was changed. Give more of the text around the one you mean, or set all to true to replace every one.", n, a.Path, placesOf(text, a.Old))
	}
	return ""
}

var lineNumbers = regexp.MustCompile(`(?m)^ *[0-9]+\t`)

// whyNot guesses why a text does not match.
func whyNot(text, old string) string {
	squeeze := func(s string) string { return strings.Join(strings.Fields(s), " ") }
	unnumbered := lineNumbers.ReplaceAllString(old, "")
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

// placesOf says in which lines a text is.
func placesOf(text, old string) string {
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

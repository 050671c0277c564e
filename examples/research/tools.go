package research

import (
	"cmp"
	"context"
	"embed"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/perdure/perdure/agent"
	"github.com/perdure/perdure/agent/files"
	"github.com/perdure/perdure/examples/internal/pace"
)

// The web, as far as this package knows it.
//
//go:embed pages/*.md
var web embed.FS

// page returns the text of a page, and its first line without the mark.
func page(name string) (title, text string, err error) {
	data, err := web.ReadFile("pages/" + name + ".md")
	if err != nil {
		return "", "", fmt.Errorf("there is no page %q", name)
	}
	title, _, _ = strings.Cut(strings.TrimPrefix(string(data), "# "), "\n")
	return title, string(data), nil
}

type searchArgs struct {
	Query string `json:"query" jsonschema:"some words" schema:"minlen=1,maxlen=200"`
}

// searchTool finds pages by the words in them.
func searchTool(d time.Duration) agent.Tool {
	return agent.NewTool("search", "Finds pages. Returns their names and titles, the best first.", func(ctx context.Context, a searchArgs) (string, error) {
		// Searches of one message run at the same time, and end one after the other.
		if err := pace.Wait(ctx, time.Duration(len(a.Query))*d); err != nil {
			return "", err
		}
		type hit struct {
			name, title string
			count       int
		}
		var hits []hit
		all, err := web.ReadDir("pages")
		if err != nil {
			return "", err
		}
		for _, f := range all {
			h := hit{name: strings.TrimSuffix(f.Name(), ".md")}
			title, text, err := page(h.name)
			if err != nil {
				return "", err
			}
			h.title = title
			for _, word := range strings.Fields(strings.ToLower(a.Query)) {
				h.count += strings.Count(strings.ToLower(text), word)
			}
			if h.count > 0 {
				hits = append(hits, h)
			}
		}
		slices.SortStableFunc(hits, func(a, b hit) int { return cmp.Compare(b.count, a.count) })
		var out strings.Builder
		for _, h := range hits[:min(3, len(hits))] {
			fmt.Fprintf(&out, "%s: %s\n", h.name, h.title)
		}
		return strings.TrimSuffix(out.String(), "\n"), nil
	})
}

type readArgs struct {
	Page string `json:"page" jsonschema:"its name, as search returns it"`
}

// readTool reads a page.
func readTool(d time.Duration) agent.Tool {
	return agent.NewTool("read_page", "Returns the text of a page.", func(ctx context.Context, a readArgs) (string, error) {
		_, text, err := page(a.Page)
		if err != nil {
			return "", err // the model is told, and can try another
		}
		return text, pace.Wait(ctx, time.Duration(len(text))*d/20)
	})
}

type publishArgs struct {
	Title string `json:"title" schema:"minlen=1,maxlen=100"`
	Path  string `json:"path" jsonschema:"of the report" schema:"minlen=1"`
}

// publishTool publishes a file, when a person has approved of it.
func publishTool(files files.FS, publish func(context.Context, Report) (string, error)) agent.Tool {
	return agent.NewTool("publish", "Publishes a report.", func(ctx context.Context, a publishArgs) (string, error) {
		f, err := files.Read(ctx, a.Path)
		if err != nil {
			return "", err
		}
		where := "nowhere, since this is a demonstration"
		if publish != nil {
			if where, err = publish(ctx, Report{a.Title, f.Text}); err != nil {
				return "", err
			}
		}
		return fmt.Sprintf("Published %q: %s", a.Title, where), nil
	}, agent.WithApproval(agent.Approval{Prompt: "May the researcher publish this report?"}))
}

package cli

import (
	"errors"
	"fmt"
	"path"
	"regexp"
	"strings"

	"github.com/perdure/perdure/cli/internal/exit"
	"github.com/perdure/perdure/docs"
	"github.com/perdure/perdure/internal/safe"
	"github.com/perdure/perdure/internal/terminal"
	"github.com/spf13/cobra"
)

// docsCommand returns the command that shows the documentation. It needs no
// network, no server and no store.
func docsCommand(a *app) *cobra.Command {
	search := ""
	c := &cobra.Command{
		Use:     "docs [TOPIC]",
		Short:   "show the documentation, offline",
		Long:    "Show the documentation, offline: the list of pages, or the page about a topic.\n\nOn a terminal a page is shown in $PAGER, or in less. In a pipe it is Markdown.",
		Example: "  perdure docs\n  perdure docs concepts\n  perdure docs --search lease",
		RunE: func(c *cobra.Command, words []string) error {
			switch {
			case c.Flags().Changed("search") && len(strings.Fields(search)) == 0,
				len(words) > 1, search != "" && len(words) > 0:
				return exit.Usage(errors.New("usage: perdure docs [TOPIC], or perdure docs --search WORD"))
			case search != "":
				return a.searchDocs(search)
			case len(words) == 0:
				return a.listDocs()
			}
			return a.showDoc(c, words[0])
		},
		ValidArgsFunction: func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
			var names []string
			for _, p := range docs.Pages() {
				names = append(names, cobra.CompletionWithDesc(p.Name, p.About))
			}
			return names, cobra.ShellCompDirectiveNoFileComp
		},
	}
	c.Flags().StringVar(&search, "search", "", "list the places where all of these words occur")
	return c
}

// listDocs prints the list of pages.
func (a *app) listDocs() error {
	if a.term.JSON {
		return a.term.PrintJSON(docs.Pages())
	}
	section, width := "", 0
	for _, p := range docs.Pages() {
		width = max(width, len(p.Name))
	}
	for _, p := range docs.Pages() {
		if p.Section != section {
			if section != "" {
				a.term.Printf("\n")
			}
			section = p.Section
			a.term.Printf("%s\n", a.term.Style(terminal.Bold, section))
		}
		a.term.Printf("  %s  %s\n", safe.Pad(p.Name, width), p.About)
	}
	a.hint("perdure docs TOPIC shows a page, perdure docs --search WORD finds one")
	return nil
}

// showDoc prints the page about a topic.
func (a *app) showDoc(c *cobra.Command, topic string) error {
	page, err := findDoc(topic)
	if err != nil {
		return err
	}
	text, err := docs.FS.ReadFile(page.File)
	if err != nil {
		return err
	}
	if a.term.JSON {
		return a.term.PrintJSON(struct {
			docs.Page
			Text string `json:"text"`
		}{page, string(text)})
	}
	return a.term.Page(c.Context(), string(text))
}

// findDoc returns the page about a topic: by its name, its file, or the beginning
// of its name if that is unique.
func findDoc(topic string) (docs.Page, error) {
	want := strings.TrimPrefix(path.Clean(strings.ToLower(topic)), "docs/")
	want, _, _ = strings.Cut(want, "#") // as links in pages have it
	want = strings.TrimSuffix(strings.TrimPrefix(want, "guide/"), ".md")
	var like []docs.Page
	known := &cobra.Command{}
	for _, p := range allDocs() {
		if want == p.Name || want == strings.ToLower(strings.TrimSuffix(path.Base(p.File), ".md")) && !strings.HasPrefix(p.Name, "adr") {
			return p, nil
		}
		if number, _, _ := strings.Cut(path.Base(p.File), "-"); path.Dir(p.File) == "guide" && strings.TrimLeft(want, "0") == strings.TrimLeft(number, "0") {
			return p, nil
		}
		if strings.HasPrefix(p.Name, want) {
			like = append(like, p)
		}
		known.AddCommand(&cobra.Command{Use: p.Name, Run: func(*cobra.Command, []string) {}})
	}
	if len(like) == 1 {
		return like[0], nil
	}
	return docs.Page{}, missing(fmt.Errorf("there is no page %s%s", safe.Label(topic), didYouMean(known, want)))
}

func missing(err error) error {
	return &exit.Error{Code: exit.NotFound, Err: err, Next: "perdure docs lists the pages"}
}

// allDocs returns the pages of the index and those on decisions.
func allDocs() []docs.Page {
	all := docs.Pages()
	files, _ := docs.FS.ReadDir("adr") // it is embedded
	for _, f := range files {
		file := "adr/" + f.Name()
		if name := docs.Topic(file); name != "adr" {
			all = append(all[:len(all):len(all)], docs.Page{Name: "adr/" + strings.TrimSuffix(f.Name(), ".md"), File: file})
		}
	}
	return all
}

// docFound is a place in a page.
type docFound struct {
	Page    string `json:"page"`
	Section string `json:"section"`
	Line    int    `json:"line"`
	Text    string `json:"text"`
}

// searchDocs prints the paragraphs that contain all words of a text: where words begin
// so, or anywhere if there are none.
func (a *app) searchDocs(text string) error {
	found, words := inDocs(text, `(?i)\b`)
	if len(found) == 0 {
		found, words = inDocs(text, `(?i)`)
	}
	if a.term.JSON {
		return a.term.PrintJSON(found)
	}
	if len(found) == 0 {
		return missing(fmt.Errorf("no page has %s", safe.Label(text)))
	}
	page := ""
	for _, f := range found {
		if f.Page != page {
			page = f.Page
			a.term.Printf("%s\n", a.term.Style(terminal.Bold, page))
		}
		at := words[0].FindStringIndex(f.Text)
		a.term.Printf("  %s: %s\n", f.Section, around(f.Text, at[0], 100))
	}
	return nil
}

// inDocs returns the paragraphs that contain all words of a text, behind what matches the
// expression before.
func inDocs(text, before string) ([]docFound, []*regexp.Regexp) {
	var words []*regexp.Regexp
	for word := range strings.FieldsSeq(text) {
		words = append(words, regexp.MustCompile(before+regexp.QuoteMeta(word)))
	}
	found := []docFound{}
	for _, p := range allDocs() {
		data, _ := docs.FS.ReadFile(p.File) // it is embedded
		section, n := "", 0
	lines:
		for line := range strings.Lines(string(data)) {
			n++
			line = strings.TrimSpace(line)
			if strings.HasPrefix(line, "#") {
				section = strings.TrimSpace(strings.TrimLeft(line, "#"))
			}
			for _, word := range words {
				if !word.MatchString(line) {
					continue lines
				}
			}
			found = append(found, docFound{p.Name, section, n, line})
		}
	}
	return found, words
}

// around returns a part of a line around a place in it, of about n bytes.
func around(line string, at, n int) string {
	from, to := max(0, at-n/2), min(len(line), at+n/2)
	for from > 0 && line[from-1] != ' ' {
		from--
	}
	for to < len(line) && line[to] != ' ' {
		to++
	}
	out := strings.TrimSpace(line[from:to])
	if from > 0 {
		out = "… " + out
	}
	if to < len(line) {
		out += " …"
	}
	return out
}

// Package docs holds the pages of the documentation, so that a program can show
// them without a network: perdure docs prints them. README.md is their index. It
// imports nothing of Perdure.
package docs

import (
	"embed"
	"path"
	"regexp"
	"strings"
	"sync"
)

// FS holds the pages, by their paths below docs: README.md is the index,
// guide/01-concepts.md the first page of the guide.
//
//go:embed *.md guide/*.md adr/*.md
var FS embed.FS

// Page is a page that the index lists.
type Page struct {
	Name    string `json:"name"`    // its topic: the name of the file without number and ending
	File    string `json:"file"`    // its path in FS
	Title   string `json:"title"`   // as the index has it
	About   string `json:"about"`   // one line about it
	Section string `json:"section"` // the heading of the index below which it is listed
}

// Pages returns the pages in the order of the index, which is that in which to
// read them.
func Pages() []Page { return pages() }

var entry = regexp.MustCompile(`^- \[(.+)\]\(([^)]+\.md)\): (.+)$`)

var pages = sync.OnceValue(func() (all []Page) {
	index, _ := FS.ReadFile("README.md") // it is embedded
	section := ""
	for line := range strings.Lines(string(index)) {
		line = strings.TrimSpace(line)
		if heading, ok := strings.CutPrefix(line, "## "); ok {
			section = heading
		}
		if m := entry.FindStringSubmatch(line); m != nil {
			all = append(all, Page{Name: Topic(m[2]), File: m[2], Title: m[1], About: m[3], Section: section})
		}
	}
	return all
})

var number = regexp.MustCompile(`^\d\d-`)

// Topic returns the name of the page in a file.
func Topic(file string) string {
	dir, name := path.Split(strings.TrimSuffix(file, ".md"))
	name = strings.ToLower(number.ReplaceAllString(name, ""))
	if dir == "adr/" {
		return strings.TrimSuffix("adr/"+name, "/readme")
	}
	return name
}

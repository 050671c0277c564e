package mcpface

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io/fs"
	"path"
	"strings"

	"github.com/google/jsonschema-go/jsonschema"
	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/perdure/perdure/api"
	"github.com/perdure/perdure/client"
)

// page is a page of the documentation.
type page struct {
	Name  string `json:"name" jsonschema:"for docs_read"`
	Title string `json:"title" jsonschema:"what it is about"`
	Bytes int    `json:"bytes" jsonschema:"how long it is"`
}

// pageList is what docs_list returns.
type pageList struct {
	Pages []page `json:"pages" jsonschema:"the pages"`
}

// pageText is what docs_read returns.
type pageText struct {
	Name string `json:"name" jsonschema:"of the page"`
	Text string `json:"text" jsonschema:"Markdown"`
	Next int    `json:"next,omitempty" jsonschema:"offset of the rest; absent at the end"`
}

// found is a line of the documentation.
type found struct {
	Name string `json:"name" jsonschema:"of the page"`
	Line int    `json:"line" jsonschema:"number of the line, from 1"`
	Text string `json:"text" jsonschema:"the line"`
}

// foundList is what docs_search returns.
type foundList struct {
	Lines []found `json:"lines" jsonschema:"the lines that have all words, in the order of the pages"`
	More  bool    `json:"more,omitempty" jsonschema:"there are more: use more words"`
}

// maxFound bounds the lines that a search returns.
const maxFound = 50

// docsTools returns the tools that read the documentation, none without any.
func docsTools(docs fs.FS) []*tool {
	if docs == nil {
		return nil
	}
	text := func(doc string) *jsonschema.Schema { return &jsonschema.Schema{Type: "string", Description: doc} }
	object := func(required []string, properties map[string]*jsonschema.Schema) *jsonschema.Schema {
		return &jsonschema.Schema{Type: "object", Properties: properties, Required: required, AdditionalProperties: &jsonschema.Schema{Not: &jsonschema.Schema{}}}
	}
	make := func(name, title, doc string, in, out *jsonschema.Schema, call func(args map[string]json.RawMessage) (any, error)) *tool {
		return &tool{scope: api.ScopeNone, call: func(_ context.Context, _ *client.Client, args map[string]json.RawMessage) (*mcp.CallToolResult, error) {
			v, err := call(args)
			if err != nil {
				return nil, err
			}
			return answer(v, fromPerdure)
		}, Tool: &mcp.Tool{Name: name, Title: title, Description: doc, InputSchema: in, OutputSchema: out, Annotations: hints(true, false, true, false)}}
	}
	return []*tool{
		make("docs_list", "List the documentation", "List the pages of Perdure's documentation.", object(nil, map[string]*jsonschema.Schema{}), schemaOf[pageList](),
			func(args map[string]json.RawMessage) (any, error) {
				if err := rest(args, nil); err != nil {
					return nil, err
				}
				return listPages(docs)
			}),
		make("docs_read", "Read the documentation", "Read a page of Perdure's documentation. A long page comes in parts.",
			object([]string{"name"}, map[string]*jsonschema.Schema{"name": text("of the page, as docs_list has it"), "offset": {Type: "integer", Description: "next of the part before"}}), schemaOf[pageText](),
			func(args map[string]json.RawMessage) (any, error) { return readPage(docs, args) }),
		make("docs_search", "Search the documentation", "Find the lines of Perdure's documentation that have all of some words.",
			object([]string{"query"}, map[string]*jsonschema.Schema{"query": text("words, in any order and case")}), schemaOf[foundList](),
			func(args map[string]json.RawMessage) (any, error) { return searchPages(docs, args) }),
	}
}

// eachPage calls a function with each page.
func eachPage(docs fs.FS, do func(name string, data []byte) error) error {
	return fs.WalkDir(docs, ".", func(name string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() || path.Ext(name) != ".md" {
			return err
		}
		data, err := fs.ReadFile(docs, name)
		if err != nil {
			return err
		}
		return do(strings.TrimSuffix(name, ".md"), data)
	})
}

func listPages(docs fs.FS) (*pageList, error) {
	list := &pageList{Pages: []page{}}
	err := eachPage(docs, func(name string, data []byte) error {
		first, _, _ := bytes.Cut(data, []byte("\n"))
		list.Pages = append(list.Pages, page{Name: name, Title: strings.TrimSpace(strings.TrimLeft(string(first), "# ")), Bytes: len(data)})
		return nil
	})
	return list, err
}

func readPage(docs fs.FS, args map[string]json.RawMessage) (*pageText, error) {
	p, offset := &pageText{}, 0
	for name, to := range map[string]any{"name": &p.Name, "offset": &offset} {
		if err := take(args, name, to); err != nil {
			return nil, err
		}
	}
	if err := rest(args, []string{"name", "offset"}); err != nil {
		return nil, err
	}
	p.Name = strings.TrimSuffix(p.Name, ".md")
	data, err := []byte(nil), fs.ErrNotExist
	if fs.ValidPath(p.Name) {
		data, err = fs.ReadFile(docs, p.Name+".md")
	}
	if err != nil { // a page of the guide without its number
		_ = eachPage(docs, func(name string, text []byte) error {
			if number, rest, _ := strings.Cut(path.Base(name), "-"); rest == p.Name && strings.Trim(number, "0123456789") == "" {
				p.Name, data, err = name, text, nil
			}
			return nil
		})
	}
	if err != nil {
		return nil, fmt.Errorf("%w: there is no page %.80q; docs_list lists them", api.ErrNotFound, p.Name)
	}
	if offset < 0 || offset > len(data) {
		return nil, api.Invalid("the argument offset is 0 to %d", len(data))
	}
	end := len(data)
	if end-offset > maxResult {
		end = offset + maxResult
		if line := bytes.LastIndexByte(data[offset:end], '\n'); line > 0 {
			end = offset + line + 1
		}
		p.Next = end
	}
	p.Text = strings.ToValidUTF8(string(data[offset:end]), "")
	return p, nil
}

func searchPages(docs fs.FS, args map[string]json.RawMessage) (*foundList, error) {
	query := ""
	if err := take(args, "query", &query); err != nil {
		return nil, err
	}
	if err := rest(args, []string{"query"}); err != nil {
		return nil, err
	}
	words := strings.Fields(strings.ToLower(query))
	if len(words) == 0 || len(query) > 1000 {
		return nil, api.Invalid("the argument query needs some words, of at most 1000 bytes")
	}
	list := &foundList{Lines: []found{}}
	err := eachPage(docs, func(name string, data []byte) error {
		lines := bufio.NewScanner(bytes.NewReader(data))
		lines.Buffer(nil, 1<<20)
		for n := 1; lines.Scan(); n++ {
			low, has := strings.ToLower(lines.Text()), true
			for _, word := range words {
				has = has && strings.Contains(low, word)
			}
			if !has {
				continue
			}
			if len(list.Lines) == maxFound {
				list.More = true
				return fs.SkipAll
			}
			text := lines.Text()
			if len(text) > 400 {
				text = strings.ToValidUTF8(text[:400], "") + "…"
			}
			list.Lines = append(list.Lines, found{Name: name, Line: n, Text: text})
		}
		return lines.Err()
	})
	return list, err
}

package mcptool

import (
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/perdure/perdure/agent"
	"pgregory.net/rapid"
)

func names(tools []agent.Tool) []string {
	var all []string
	for _, t := range tools {
		all = append(all, t.Name())
	}
	return all
}

func TestToolsAreTheServers(t *testing.T) {
	both(t, Options{Only: []string{"e*", "add.*", "delete_all"}, Except: []string{"elicit"}}, func(t *testing.T, s *Server) {
		tools, err := s.Tools(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		want := []string{"test_add_note", "test_delete_all", "test_echo", "test_env"}
		if diff := cmp.Diff(want, names(tools)); diff != "" {
			t.Errorf("(-want +got)\n%s", diff)
		}
		for _, tool := range tools {
			var schema struct{ Type string }
			if err := json.Unmarshal(tool.Schema(), &schema); err != nil || schema.Type != "object" || !strings.HasPrefix(tool.Description(), "does ") {
				t.Errorf("%s: %s, %s", tool.Name(), tool.Description(), tool.Schema())
			}
		}
	})
}

func TestAnnotationsDecideApproval(t *testing.T) {
	got := map[Ask]string{}
	for _, ask := range []Ask{AskUnlessReadOnly, AskDestructive, AskAlways, AskNever} {
		s := web(t, Options{Ask: ask, Only: []string{"echo", "add.note", "delete_all", "fail"}}, nil)
		infos, err := s.List(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for _, i := range infos {
			if s.asks(i) {
				got[ask] += i.Name + " "
			}
		}
	}
	want := map[Ask]string{
		AskUnlessReadOnly: "add.note delete_all fail ",
		AskDestructive:    "delete_all fail ",
		AskAlways:         "add.note delete_all echo fail ",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
}

func TestReadOnlyToolThatDestroysIsNotTrusted(t *testing.T) {
	s := program(t, `{"name":"liar","inputSchema":{"type":"object"},"annotations":{"readOnlyHint":true,"destructiveHint":true}}`, Options{})
	infos, err := s.List(t.Context())
	if err != nil || len(infos) != 1 || !s.asks(infos[0]) {
		t.Errorf("got %+v, %v", infos, err)
	}
}

func TestTyposInPatternsAreTold(t *testing.T) {
	for _, s := range []*Server{
		web(t, Options{Only: []string{"ecko"}}, nil),
		web(t, Options{}, nil).With("delet_*", agent.NeedsApproval()),
	} {
		if _, err := s.Tools(t.Context()); !errors.Is(err, ErrOption) {
			t.Errorf("got %v, want ErrOption", err)
		}
	}
}

func TestListsComeInPages(t *testing.T) {
	tools, err := program(t, "pages", Options{NoPrefix: true}).Tools(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"t0", "t1", "t2", "t3", "t4"}, names(tools)); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
}

func TestBadListsAreRefused(t *testing.T) {
	tool := func(name, schema string) string { return fmt.Sprintf(`{"name":%q,"inputSchema":%s}`, name, schema) }
	cases := map[string]string{ // the list, and what the error says
		"endless":                               "pages",
		"circle":                                "circle",
		tool("a", `"text"`):                     "not a JSON object",
		tool("a", `null`):                       "not a JSON object",
		tool("a", `{"type":"string"}`):          "not that of an object",
		tool("a", `{"type":["object","null"]}`): "not that of an object",
		tool("a", `{"type":"object","properties":5}`):                                                                "the schema",
		tool("a", `{"type":"object","$ref":"https://evil.example"}`):                                                 "the schema",
		tool("a", `{"properties":{"a":{"$ref":"#/$defs/x"}},"$defs":{"x":{"$ref":"#/$defs/x"}}}`):                    `tool "a" of server test: the schema of its arguments: checking would take too long: #/$defs/x`,
		tool("", `{"type":"object"}`):                                                                                "its name",
		tool("a", `{"type":"object"}`) + "," + tool("a", `{"type":"object"}`):                                        "twice",
		tool("a.b", `{"type":"object"}`) + "," + tool("a/b", `{"type":"object"}`):                                    "both be called test_a_b",
		`{"name":"a","description":"` + strings.Repeat("x", maxDescription+1) + `","inputSchema":{"type":"object"}}`: "its description",
	}
	for list, want := range cases {
		s := program(t, list, Options{})
		_, err := s.Tools(t.Context())
		if !errors.Is(err, ErrList) || !strings.Contains(err.Error(), want) || len(err.Error()) > 1000 {
			t.Errorf("%.60s: %.1000v, want ErrList that says %q", list, err, want)
		}
	}
	s := program(t, tool("good", `{}`)+","+tool("bad", `[]`), Options{Except: []string{"bad"}})
	if tools, err := s.Tools(t.Context()); err != nil || len(tools) != 1 || string(tools[0].Schema()) != `{"type":"object"}` {
		t.Errorf("with the bad one left out: %v, %v", names(tools), err)
	}
}

func TestListCanBeKept(t *testing.T) {
	s := web(t, Options{}, nil)
	infos, err := s.List(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	file, err := json.Marshal(infos)
	if err != nil {
		t.Fatal(err)
	}
	var kept []Info
	if err := json.Unmarshal(file, &kept); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(infos, kept); diff != "" {
		t.Errorf("(-listed +kept)\n%s", diff)
	}
	live, err := s.Tools(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for i, info := range kept {
		d := Command("test", "nothing that can be started").Declare(info)
		if d.Name() != live[i].Name() || d.Description() != live[i].Description() || string(d.Schema()) != string(live[i].Schema()) {
			t.Errorf("%s is declared as %s %s %s", live[i].Name(), d.Name(), d.Description(), d.Schema())
		}
	}
}

func TestToolNamesFitEveryModel(t *testing.T) {
	ok := regexp.MustCompile(`^[a-zA-Z0-9_-]{1,64}$`)
	rapid.Check(t, func(t *rapid.T) {
		name := rapid.StringN(1, 200, -1).Draw(t, "name")
		s := Command("srv", "x")
		got := s.toolName(name)
		if !ok.MatchString(got) || got != s.toolName(name) {
			t.Errorf("%q becomes %q", name, got)
		}
	})
	s := Command("srv", "x")
	long := strings.Repeat("a", 80)
	if s.toolName(long+"b") == s.toolName(long+"c") {
		t.Error("two long names became one")
	}
}

func TestPatterns(t *testing.T) {
	for _, c := range []struct {
		pattern, name string
		want          bool
	}{
		{"a", "a", true}, {"a", "ab", false}, {"*", "", true}, {"*", "a/b", true}, {"del*", "delete", true}, {"*_all", "delete_all", true},
		{"a*a", "a", false}, {"a*a", "aa", true}, {"a*b*c", "axbxc", true}, {"a*b*c", "axc", false}, {"a*b*b", "ab", false}, {"", "a", false},
	} {
		if got := matches(c.pattern, c.name); got != c.want {
			t.Errorf("matches(%q, %q) = %v", c.pattern, c.name, got)
		}
	}
}

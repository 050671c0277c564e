package history_test

import (
	"fmt"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/perdure/perdure/llm"
	"github.com/perdure/perdure/llm/internal/history"
)

// TestHistoryFitsEveryProvider: whatever models called their tools and calls,
// names and ids are what all providers take, results stay with their calls, and
// nothing changes when the conversation goes on.
func TestHistoryFitsEveryProvider(t *testing.T) {
	odd := []string{"echo", "functions.echo", "functions_echo", "", "ü", "a b", "a.b", "1", strings.Repeat("n", 200), "functions.echo:0", "chatcmpl-tool-0123456789abcdef0123456789abcdef", "\xff", "-"}
	r := &llm.Request{Tools: []llm.Tool{{Name: "a.b"}}}
	for range 2 { // the ids again, for other calls
		for i, s := range odd {
			r.Messages = append(r.Messages,
				llm.Message{Role: llm.RoleAssistant, Parts: []llm.Part{{Call: &llm.Call{ID: s, Name: s, Args: fmt.Sprint(i)}}}},
				llm.Message{Role: llm.RoleTool, Parts: []llm.Part{{Result: &llm.Result{Call: s, Name: s}}}})
		}
	}
	before := fmt.Sprintf("%+v", r.Messages[2].Parts[0].Call)
	got := history.IDs(history.Names(r))
	name, id := regexp.MustCompile(`^([a-zA-Z_][a-zA-Z0-9_-]{0,63}|a\.b)$`), regexp.MustCompile(`^[a-zA-Z0-9_-]{1,40}$`)
	ids, names := map[string]bool{}, map[string]string{}
	for i := 0; i < len(got); i += 2 {
		c, res := got[i].Parts[0].Call, got[i+1].Parts[0].Result
		was := odd[i/2%len(odd)]
		if !name.MatchString(c.Name) || !id.MatchString(c.ID) || ids[c.ID] {
			t.Errorf("%q became %+v", was, c)
		}
		if res.Call != c.ID || res.Name != c.Name {
			t.Errorf("%q: the result of %+v is %+v", was, c, res)
		}
		if other, ok := names[c.Name]; ok && other != was {
			t.Errorf("%q and %q are both %q", was, other, c.Name)
		}
		if (was == "echo" || was == "a.b") && c.Name != was || was == "echo" && i == 0 && c.ID != was {
			t.Errorf("%q became %+v", was, c)
		}
		ids[c.ID], names[c.Name] = true, was
	}
	r.Messages = r.Messages[:20]
	if diff := cmp.Diff(got[:20], history.IDs(history.Names(r))); diff != "" {
		t.Errorf("the beginning of the conversation changed:\n%s", diff)
	}
	if after := fmt.Sprintf("%+v", r.Messages[2].Parts[0].Call); before != after {
		t.Errorf("the request changed: %s", after)
	}
}

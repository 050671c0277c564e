package perdure_test

import (
	"strings"
	"testing"
	"testing/synctest"

	"github.com/perdure/perdure"
)

func TestGroupsMayAnswer(t *testing.T) {
	for name, c := range map[string]struct {
		who, groups []string
		by          string
		want        error
	}{
		"anyone":                    {nil, nil, "", nil},
		"by name":                   {[]string{"ann", "group:ops"}, nil, "ann", nil},
		"by group":                  {[]string{"ann", "group:ops"}, []string{"dev", "ops"}, "bob", nil},
		"in another group":          {[]string{"ann", "group:ops"}, []string{"dev"}, "bob", perdure.ErrForbidden},
		"in no group":               {[]string{"group:ops"}, nil, "bob", perdure.ErrForbidden},
		"a group is no name":        {[]string{"ops"}, []string{"ops"}, "bob", perdure.ErrForbidden},
		"a name is no group":        {[]string{"group:ops"}, nil, "group:ops", perdure.ErrForbidden},
		"a name that is like one's": {[]string{"group:ops"}, nil, "ops", perdure.ErrForbidden},
		"a group is named once":     {[]string{"group:ops"}, []string{"group:ops"}, "bob", perdure.ErrForbidden},
		"a group with a mark":       {[]string{"group:group:ops"}, []string{"group:ops"}, "bob", nil},
	} {
		bubble(t, name, func(t *testing.T) {
			k := newKit(t, nil, perdure.Options{}, askFlow("ask", perdure.Question{Who: c.who}))
			k.start("t", "ask", "")
			ask := k.at(k.wait("t", perdure.Suspended), "/ask").ID
			a := perdure.AskAnswer{Ask: ask, Answer: perdure.Answer{Value: "x", By: c.by}, Groups: c.groups}
			wantErr(t, "answer", k.Answer(t.Context(), a), c.want)
			synctest.Wait()
			if c.want != nil {
				k.wait("t", perdure.Suspended)
				return
			}
			wantOutput(t, k.wait("t", perdure.Succeeded), "x")
			wantErr(t, "the same again", k.Answer(t.Context(), a), nil)
			for _, e := range k.events("t") {
				if e.Kind == "answered" && (e.By != c.by || strings.Contains(string(e.Value), "ops")) {
					t.Errorf("the event of the answer is %+v", e)
				}
			}
		})
	}
}

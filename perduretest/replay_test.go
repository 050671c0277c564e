package perduretest

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/perdure/perdure"
)

// replayFlow is a flow of steps with the given names.
func replayFlow(called *int, names ...string) perdure.Flow {
	return perdure.NewFlow("flow", func(ctx context.Context, in string) (string, error) {
		for _, name := range names {
			if _, err := perdure.Step(ctx, name, func(context.Context) (string, error) {
				*called++
				return name, nil
			}); err != nil {
				return "", err
			}
		}
		return in, nil
	})
}

func TestReplayFailsATestWhereTheCodeNoLongerFits(t *testing.T) {
	called := 0
	file := filepath.Join(t.TempDir(), "thread.jsonl")
	Virtual(t, Setup{Flows: []perdure.Flow{replayFlow(&called, "a", "b")}}, func(t *testing.T, e *Env) {
		e.Start("t", "flow", "hello")
		e.Wait("t", perdure.Succeeded)
		var buf bytes.Buffer
		if err := e.Runtime().Export(t.Context(), "t", &buf, perdure.ExportOptions{}); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, buf.Bytes(), 0o666); err != nil {
			t.Fatal(err)
		}
	})
	called = 0
	for name, c := range map[string]struct {
		file  string
		flow  perdure.Flow
		wants []string
	}{
		"the same code":    {file, replayFlow(&called, "a", "b"), nil},
		"a renamed step":   {file, replayFlow(&called, "a", "c"), []string{"no longer fits", `- step "b"`, `+ step "c"`}},
		"no such file":     {file + "x", replayFlow(&called, "a", "b"), []string{"thread.jsonlx"}},
		"no export at all": {"replay_test.go", replayFlow(&called, "a", "b"), []string{"it does not begin an export"}},
	} {
		t.Run(name, func(t *testing.T) {
			r := &recorder{TB: t, ctx: t.Context()}
			Replay(r, c.file, c.flow)
			said := strings.Join(r.said, "\n")
			if (said == "") != (c.wants == nil) {
				t.Errorf("it says %q", said)
			}
			for _, want := range c.wants {
				if !strings.Contains(said, want) {
					t.Errorf("it does not say %q:\n%s", want, said)
				}
			}
		})
	}
	if called != 0 {
		t.Errorf("%d step functions were called", called)
	}
}

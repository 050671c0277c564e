package llmtest

import (
	"bufio"
	"context"
	"encoding/json"
	"iter"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"

	"github.com/perdure/perdure/llm"
)

// remote is a small model over HTTP: a line of JSON is a delta.
func remote(client *http.Client, url string) llm.ModelFunc {
	return func(ctx context.Context, r *llm.Request) iter.Seq2[llm.Delta, error] {
		return func(yield func(llm.Delta, error) bool) {
			fail := func(err error) {
				if ctx.Err() != nil {
					err = ctx.Err()
				}
				yield(llm.Delta{}, err)
			}
			body, err := json.Marshal(r)
			if err != nil {
				fail(err)
				return
			}
			req, err := http.NewRequestWithContext(ctx, "POST", url, strings.NewReader(string(body)))
			if err != nil {
				fail(err)
				return
			}
			req.Header.Set("Authorization", "Bearer CANARY-of-the-model")
			resp, err := client.Do(req)
			if err != nil {
				fail(err)
				return
			}
			defer resp.Body.Close()
			lines := bufio.NewScanner(resp.Body)
			for lines.Scan() {
				var d llm.Delta
				if err := json.Unmarshal(lines.Bytes(), &d); err != nil {
					fail(err)
					return
				}
				if !yield(d, nil) {
					return
				}
			}
			if err := lines.Err(); err != nil {
				fail(err)
			}
		}
	}
}

// server answers every request with the same deltas. It keeps its connections
// open for a while, as services do.
func server(t *testing.T) *httptest.Server {
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		enc := json.NewEncoder(w)
		for _, d := range whole {
			if enc.Encode(d) != nil {
				return
			}
			w.(http.Flusher).Flush()
		}
	}))
	t.Cleanup(s.Close)
	return s
}

func TestRunWorksOverHTTP(t *testing.T) {
	Run(t, func(t *testing.T) llm.Model { return remote(http.DefaultClient, server(t).URL) })
}

func TestAModelThatIsRecordedAnswersTheSameWithoutItsServer(t *testing.T) {
	file := filepath.Join(t.TempDir(), "tape.json")
	var first []*llm.Reply
	t.Setenv(Env, "record")
	t.Run("record", func(t *testing.T) {
		m := remote(Client(t, file, Options{}), server(t).URL)
		for _, r := range requests() {
			reply, err := llm.Collect(m.Generate(t.Context(), r))
			if err != nil {
				t.Fatal(err)
			}
			first = append(first, reply)
		}
	})
	t.Setenv(Env, "")
	m := remote(Client(t, file, Options{}), "http://elsewhere.invalid")
	for i, r := range requests() {
		reply, err := llm.Collect(m.Generate(t.Context(), r))
		if err != nil {
			t.Fatal(err)
		}
		if a, b := asJSON(t, first[i]), asJSON(t, reply); a != b {
			t.Errorf("%s, but was recorded as %s", b, a)
		}
	}
}

func asJSON(t *testing.T, v any) string {
	data, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

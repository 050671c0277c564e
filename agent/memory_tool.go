package agent

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/base32"
	"strings"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/agent/memory"
)

// MemoryToolOptions of [MemoryTools].
type MemoryToolOptions struct {
	Part []string      // the part of the user's memory to use, such as the agent's name; nil means all of it
	TTL  time.Duration // after which a fact is forgotten; 0 means never
}

// Memo is what the tool remember keeps.
type Memo struct {
	Text   string `json:"text"`
	Thread string `json:"thread"` // on which it was learned
}

// MemoryTools returns the tools remember and recall, by which a model stores what it
// learns about the thread's owner and finds it again on every thread of that user.
// They reach no other user's memory, whatever the model says.
//
// What is remembered is also a fact of the thread: it is listed in the Facts of
// [perdure.Checkpoint], under the same key.
func MemoryTools(o MemoryToolOptions) []Tool {
	type remember struct {
		Key  string `json:"key,omitempty" jsonschema:"short name of the fact; the same name replaces it" schema:"maxlen=100"`
		Text string `json:"text" jsonschema:"the fact, in one or a few sentences" schema:"minlen=1,maxlen=8000"`
	}
	type recall struct {
		Query string `json:"query,omitempty" jsonschema:"words to look for; leave it out for the newest facts" schema:"maxlen=1000"`
		Limit int    `json:"limit,omitempty" jsonschema:"how many facts at most" schema:"min=1,max=50"`
	}
	type fact struct {
		Key  string    `json:"key"`
		Text string    `json:"text"`
		Time time.Time `json:"time"`
	}
	return []Tool{
		NewTool("remember", "Remember a fact about the user for later conversations.",
			func(ctx context.Context, a remember) (string, error) {
				place, err := perdure.Here(ctx)
				if err != nil {
					return "", err
				}
				m, err := memory.Here(ctx)
				if err != nil {
					return "", err
				}
				key := cmp.Or(a.Key, keyOf(a.Text))
				ns := memory.User(place.User, o.Part...)
				if _, err := m.Put(ctx, ns, key, Memo{a.Text, place.Thread}, memory.PutOptions{TTL: o.TTL}); err != nil {
					return "", err
				}
				return "remembered as " + key, perdure.NewFact[string](key).Set(ctx, a.Text)
			}, Normalize(func(a remember) (remember, error) {
				a.Key = strings.TrimSpace(a.Key)
				return a, nil
			})),
		NewTool("recall", "Recall what was remembered about the user.",
			func(ctx context.Context, a recall) ([]fact, error) {
				m, err := memory.Here(ctx)
				if err != nil {
					return nil, err
				}
				items, err := m.Search(ctx, append(m.Home(), o.Part...), a.Query, cmp.Or(a.Limit, 10))
				facts := make([]fact, len(items))
				for i, item := range items {
					facts[i] = fact{item.Key, textOfItem(item), item.Updated}
				}
				return facts, err
			}),
	}
}

// textOfItem returns the text of a value, which other code may have put: that of a
// Memo, or the JSON.
func textOfItem(item *memory.Item) string {
	var memo Memo
	if item.Decode(&memo) == nil && memo.Text != "" {
		return memo.Text
	}
	var text string
	if item.Decode(&text) == nil {
		return text
	}
	return string(item.Value)
}

// keyOf names a fact without a name, so that the same one is kept once.
func keyOf(text string) string {
	sum := sha256.Sum256([]byte(text))
	return "fact-" + strings.ToLower(base32.StdEncoding.EncodeToString(sum[:5]))
}

// Package history rewrites the tool calls of a conversation so that every provider
// takes them. Models make up names of tools, and ids come from other providers when
// an agent changes its model; a provider that refuses one of them would refuse the
// conversation forever. It may import llm.
package history

import (
	"cmp"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"regexp"
	"strings"

	"github.com/perdure/perdure/llm"
)

var (
	goodName = regexp.MustCompile(`^[a-zA-Z_][a-zA-Z0-9_-]{0,63}$`)
	goodID   = regexp.MustCompile(`^[a-zA-Z0-9_-]{1,40}$`)
	odd      = regexp.MustCompile(`[^a-zA-Z0-9_-]+`)
)

// Names returns the messages of a request with tool names that are declared or that
// every provider takes. Any other name is replaced, always in the same way.
func Names(r *llm.Request) []llm.Message {
	declared := map[string]bool{}
	for _, t := range r.Tools {
		declared[t.Name] = true
	}
	name := func(s string) string {
		if declared[s] || goodName.MatchString(s) {
			return s
		}
		return plain("tool_", s, 64)
	}
	return rewrite(r.Messages, func(c llm.Call) llm.Call {
		c.Name = name(c.Name)
		return c
	}, func(r llm.Result) llm.Result {
		r.Name = name(r.Name)
		return r
	})
}

// IDs returns messages whose calls have unique ids that every provider takes, and
// whose results have those of their calls. An id stays if it can; what it becomes
// depends only on what comes before it.
func IDs(messages []llm.Message) []llm.Message {
	used := map[string]bool{}
	now := map[string]string{} // new ids by those that the last such call had
	fit := func(id string) string {
		if goodID.MatchString(id) {
			return id
		}
		return plain("call_", id, 40)
	}
	return rewrite(messages, func(c llm.Call) llm.Call {
		id := fit(c.ID)
		for n := 2; used[id]; n++ {
			id = fit(fmt.Sprintf("%s_%d", c.ID, n))
		}
		used[id] = true
		now[c.ID] = id
		c.ID = id
		return c
	}, func(r llm.Result) llm.Result {
		r.Call = cmp.Or(now[r.Call], fit(r.Call))
		return r
	})
}

// plain returns a text of letters, digits, _ and - that stands for s, with a hash
// of s.
func plain(prefix, s string, limit int) string {
	hash := fmt.Sprintf("_%x", sha256.Sum256([]byte(s)))[:13]
	s = prefix + strings.Trim(odd.ReplaceAllString(s, "_"), "_")
	return strings.TrimRight(s[:min(len(s), limit-len(hash))], "_") + hash
}

// rewrite returns messages with other calls and results, and leaves its input as it
// is.
func rewrite(messages []llm.Message, call func(llm.Call) llm.Call, result func(llm.Result) llm.Result) []llm.Message {
	out := make([]llm.Message, len(messages))
	for i, m := range messages {
		out[i] = m
		out[i].Parts = make([]llm.Part, len(m.Parts))
		for j, p := range m.Parts {
			if p.Call != nil {
				c := call(*p.Call)
				p.Call = &c
			}
			if p.Result != nil {
				r := result(*p.Result)
				p.Result = &r
			}
			out[i].Parts[j] = p
		}
	}
	return out
}

// Arguments returns the arguments of a call as the object that providers demand.
// Invalid JSON goes back as a text, so that the model sees its mistake.
func Arguments(args string) json.RawMessage {
	if args == "" {
		return json.RawMessage(`{}`)
	}
	args = strings.ToValidUTF8(args, "\uFFFD")
	if !IsObject(args) {
		raw, _ := json.Marshal(map[string]string{"invalid_json": args})
		return raw
	}
	return json.RawMessage(args)
}

// IsObject reports whether a text is a JSON object.
func IsObject(s string) bool {
	return strings.HasPrefix(strings.TrimLeft(s, " \t\r\n"), "{") && json.Valid([]byte(s))
}

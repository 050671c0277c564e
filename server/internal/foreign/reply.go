package foreign

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/agent"
	"github.com/perdure/perdure/api"
)

// Decided makes a reply from {decision, value, message}, if that is what o is.
// Other members would be lost, so they are refused.
func Decided(ask *perdure.AskInfo, o Object) (reply api.Reply, ok bool, err error) {
	if json.Unmarshal(o["decision"], &reply.Decision) != nil || !slices.Contains(ask.Decisions, reply.Decision) || reply.Decision == agent.DecisionProvided {
		return api.Reply{}, false, nil
	}
	for name := range o {
		if name != "decision" && name != "value" && name != "message" {
			return api.Reply{}, false, fmt.Errorf("%w: ask %s: a decision has value and message beside it, not %.40q", perdure.ErrAnswer, ask.ID, name)
		}
	}
	reply.Value, _ = o.Get("value")
	return reply, true, o.Decode("message", &reply.Message)
}

// secretDepth is how deep in a response a secret is searched for: each level
// parses everything below it once more.
const secretDepth = 5

// Secret returns the secret in a client's response to a request for a credential,
// "" if there is none.
func Secret(raw json.RawMessage) string { return secretIn(raw, secretDepth) }

func secretIn(raw json.RawMessage, depth int) string {
	var text string
	if depth == 0 {
		return ""
	}
	if json.Unmarshal(raw, &text) == nil {
		return text
	}
	o, _ := ParseObject(raw)
	for _, name := range []string{"secret", "payload", "result", "apiKey", "accessToken", "token"} {
		value, _ := o.Get(name)
		if json.Unmarshal(value, &text) == nil && text != "" {
			return text
		}
	}
	for _, name := range []string{"authConfig", "exchangedAuthCredential", "oauth2", "http", "credentials"} {
		if inner, _ := o.Get(name); inner != nil {
			if text := secretIn(inner, depth-1); text != "" {
				return text
			}
		}
	}
	return ""
}

// Gone reports whether a thread that was listed no longer exists.
func Gone(err error) bool {
	return errors.Is(err, perdure.ErrNoThread) || errors.Is(err, perdure.ErrErased)
}

// LastName returns the last segment of a path.
func LastName(path string) string { return path[strings.LastIndexByte(path, '/')+1:] }

package agent

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"

	"github.com/perdure/perdure"
)

// holderKey begins the keys of the state that say who holds a conversation.
const holderKey = "agent.holder."

// holding says who holds a conversation that began with another agent.
type holding struct {
	Agent string   `json:"agent"`
	Via   []string `json:"via,omitempty"` // who had it before: whom they may hand over to, it may
}

// Holder returns the name of the agent that holds the conversation that began with
// the agent first: the one that answers the next message, see Options.Transfer.
// [perdure.Runtime.StateAt] returns the state, now or at any earlier time.
func Holder(state map[string]json.RawMessage, first string) (string, error) {
	key := holderKey + first
	if state[key] == nil {
		return first, nil
	}
	h, err := readState[holding](state, key, fmt.Sprintf("who holds the conversation of %q", first))
	return h.Agent, err
}

func (t *talk) state() perdure.State[holding] { return perdure.NewState[holding](holderKey + t.name) }

// keep makes an agent the one that holds the conversation from the thread's next
// run on. It is for the step that hands it over.
func (t *talk) keep(ctx context.Context, agent string) error {
	switch {
	case !t.kept:
		return nil
	case agent == t.name:
		return t.state().Delete(ctx)
	}
	via := slices.DeleteFunc(slices.Clone(t.via), func(name string) bool { return name == agent })
	return t.state().Set(ctx, holding{agent, via})
}

// held is who answers in a run, as recorded at its start.
type held struct {
	Agent string `json:"agent"`
	Gone  bool   `json:"gone,omitempty"` // and so the first one does
}

// HolderGone is the value of the event holder-gone: the agent that held the
// conversation is no longer one of those that may hold it, so the agent that the
// conversation began with answers.
type HolderGone struct {
	Agent string `json:"agent"` // the agent that is gone
	First string `json:"first"` // the agent that holds the conversation from now on
}

// holder returns the agent that holds the conversation, "" if it is the first.
// That is decided once in a run, whatever is deployed meanwhile.
func (t *talk) holder(ctx context.Context) (string, error) {
	if !t.kept {
		return "", nil
	}
	h, ok, err := t.state().Lookup(ctx)
	if err != nil || !ok || h.Agent == t.name {
		return "", err
	}
	for _, name := range h.Via {
		if a := t.family[name]; a != nil {
			t.joins(a)
		}
	}
	now, err := perdure.Step(ctx, "holder", func(ctx context.Context) (held, error) {
		if _, there := t.family[h.Agent].(*modelAgent); there {
			return held{Agent: h.Agent}, nil
		}
		return held{h.Agent, true}, t.state().Delete(ctx)
	})
	if err != nil || !now.Gone {
		return now.Agent, err
	}
	return "", perdure.Emit(ctx, "holder-gone", HolderGone{now.Agent, t.name})
}

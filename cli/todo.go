package cli

import (
	"github.com/perdure/perdure/agent"
	"github.com/perdure/perdure/internal/safe"
)

// todoLine is a todo in a list.
func todoLine(t agent.Todo) string {
	mark := "[ ]"
	switch t.Status {
	case agent.TodoInProgress:
		mark = "[>]"
	case agent.TodoCompleted:
		mark = "[x]"
	case agent.TodoCancelled:
		mark = "[-]"
	}
	return mark + " " + safe.Line(t.Content)
}

package agent_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/perdure/perdure/agent"
)

func todo(parts ...string) map[string]any {
	m := map[string]any{}
	for i, key := range []string{"id", "content", "status"} {
		if i < len(parts) && parts[i] != "" {
			m[key] = parts[i]
		}
	}
	return m
}

func TestTodosSay(t *testing.T) {
	list := func(l ...any) []any { return l }
	calls := []toolUse{
		use("write_todos", "todos", list(todo("", "read"), todo("plan", "make a plan", "in_progress"), todo("", "write"))),
		use("write_todos", "todos", list(todo("plan", "", "completed"), todo("1", "", "in_progress"), todo("", "rest"))),
		use("write_todos", "todos", list(todo("2", "write it down"), todo("3", "", "cancelled"))),
		use("write_todos", "todos", list(todo("9", "", "completed"))),
		use("write_todos", "todos", list(todo("1", "a"), todo("1", "b"))),
		use("write_todos", "todos", list()),
		use("write_todos", "replace", true, "todos", list(todo("2"), todo("1"), todo("plan"), todo("3"))),
		use("write_todos", "replace", true, "todos", list(todo("2", "", "pending"), todo("", "new"))),
		use("write_todos", "replace", true, "todos", list()),
	}
	got := runTools(t, agent.TodoTools(), calls...)
	want := []string{
		"Changed: 3 added.\n[ ] 1: read\n[>] plan: make a plan\n[ ] 2: write",
		"Changed: 1 added, 1 begun, 1 completed.\n[>] 1: read\n[x] plan: make a plan\n[ ] 2: write\n[ ] 3: rest",
		"Changed: 1 cancelled, 1 reworded.\n[>] 1: read\n[x] plan: make a plan\n[ ] 2: write it down\n[-] 3: rest",
		`error: Todo 1, with the id "9", is not in the list; a new one needs its content. Nothing was changed.`,
		`error: The id "1" is given twice. Nothing was changed.`,
		"Nothing changed.\n[>] 1: read\n[x] plan: make a plan\n[ ] 2: write it down\n[-] 3: rest",
		"Changed: the order.\n[ ] 2: write it down\n[>] 1: read\n[x] plan: make a plan\n[-] 3: rest",
		"Changed: 1 added, 3 removed.\n[ ] 2: write it down\n[ ] 4: new",
		"Changed: 2 removed.\nThe list is empty.",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

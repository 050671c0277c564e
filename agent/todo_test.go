package agent

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
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
	calls := []toolCall{
		call("write_todos", "todos", list(todo("", "read"), todo("plan", "make a plan", "in_progress"), todo("", "write"))),
		call("write_todos", "todos", list(todo("plan", "", "completed"), todo("1", "", "in_progress"), todo("", "rest"))),
		call("write_todos", "todos", list(todo("2", "write it down"), todo("3", "", "cancelled"))),
		call("write_todos", "todos", list(todo("9", "", "completed"))),
		call("write_todos", "todos", list(todo("1", "a"), todo("1", "b"))),
		call("write_todos", "todos", list()),
		call("write_todos", "replace", true, "todos", list(todo("2"), todo("1"), todo("plan"), todo("3"))),
		call("write_todos", "replace", true, "todos", list(todo("2", "", "pending"), todo("", "new"))),
		call("write_todos", "replace", true, "todos", list()),
	}
	got := runTools(t, TodoTools(), calls...)
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

// TestMergedTodosKeepTheOthers merges anything into anything.
func TestMergedTodosKeepTheOthers(t *testing.T) {
	ids := rapid.SampledFrom([]string{"", "1", "2", "3", "a", "b"})
	texts := rapid.SampledFrom([]string{"", "x", "y"})
	status := rapid.SampledFrom([]TodoStatus{"", TodoPending, TodoInProgress, TodoCompleted, TodoCancelled, "odd"})
	args := rapid.Custom(func(t *rapid.T) todoArgs {
		var a todoArgs
		for range rapid.IntRange(0, 5).Draw(t, "n") {
			a.Todos = append(a.Todos, todoArg{ids.Draw(t, "id"), texts.Draw(t, "content"), status.Draw(t, "status")})
		}
		a.Replace = rapid.Bool().Draw(t, "replace")
		return a
	})
	rapid.Check(t, func(t *rapid.T) {
		var list []Todo
		for range rapid.IntRange(1, 4).Draw(t, "calls") {
			a := args.Draw(t, "args")
			before := strings.Clone(tellTodos(nil, list))
			next, why := mergeTodos(list, a)
			if got := tellTodos(nil, list); got != before {
				t.Fatalf("the list before was changed: %s", got)
			}
			if why != "" {
				continue
			}
			seen := map[string]bool{}
			for _, todo := range next {
				if todo.ID == "" || seen[todo.ID] || todo.Content == "" || todoMarks[todo.Status] == "" {
					t.Fatalf("%+v in %+v", todo, next)
				}
				seen[todo.ID] = true
			}
			for i, todo := range list {
				if !a.Replace && next[i].ID != todo.ID {
					t.Fatalf("a merge of %+v moved or lost %q: %+v", a, todo.ID, next)
				}
			}
			if a.Replace && len(next) != len(a.Todos) {
				t.Fatalf("%+v became %+v", a, next)
			}
			list = next
		}
	})
}

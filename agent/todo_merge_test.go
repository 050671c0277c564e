package agent

import (
	"strings"
	"testing"

	"pgregory.net/rapid"
)

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

package agent

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/perdure/perdure"
)

// Todo is one thing that an agent plans to do.
type Todo struct {
	ID      string     `json:"id"`
	Content string     `json:"content"`
	Status  TodoStatus `json:"status"`
}

// TodoStatus says how far a todo is.
type TodoStatus string

// How far a todo can be.
const (
	TodoPending    TodoStatus = "pending"
	TodoInProgress TodoStatus = "in_progress"
	TodoCompleted  TodoStatus = "completed"
	TodoCancelled  TodoStatus = "cancelled"
)

// todoMarks are how a list shows the statuses.
var todoMarks = map[TodoStatus]string{TodoPending: "[ ]", TodoInProgress: "[>]", TodoCompleted: "[x]", TodoCancelled: "[-]"}

const (
	todoKey  = "agent.todos"
	maxTodos = 200
)

var todoState = perdure.NewState[[]Todo](todoKey)

// Todos returns the todos of the thread, in order. They are part of its state, and are
// forked and rewound with it.
func Todos(ctx context.Context) ([]Todo, error) { return todoState.Get(ctx) }

// TodosAt returns the todos in the state of a thread. [perdure.Runtime.StateAt]
// returns the state, now or at any earlier time.
func TodosAt(state map[string]json.RawMessage) ([]Todo, error) {
	return readState[[]Todo](state, todoKey, "the todos")
}

// TodoTools returns the tool write_todos, by which an agent keeps a list of what it
// plans to do. Its result says what has changed and shows the whole list, so that
// everyone who follows the thread sees it in the event of the call.
func TodoTools() []Tool {
	return []Tool{NewTool("write_todos",
		"Keeps your list of todos. Todos are merged into the list by id: give only those that are new or changed, and of a changed one only its id and what changes. With replace the list is what you give. Keep one todo in progress at a time, and complete it as soon as it is done.",
		writeTodos, Serial())}
}

type todoArgs struct {
	Todos   []todoArg `json:"todos" schema:"maxlen=200"`
	Replace bool      `json:"replace,omitempty" jsonschema:"the list becomes these todos, and all others are forgotten"`
}

type todoArg struct {
	ID      string     `json:"id,omitempty" jsonschema:"which todo; a new one without an id gets a number" schema:"maxlen=100"`
	Content string     `json:"content,omitempty" jsonschema:"what is to be done; may be left out of a todo that is in the list" schema:"maxlen=2000"`
	Status  TodoStatus `json:"status,omitempty" jsonschema:"a new one is pending if it is left out" schema:"enum=pending|in_progress|completed|cancelled"`
}

func writeTodos(ctx context.Context, a todoArgs) (Output, error) {
	old, err := todoState.Get(ctx)
	if err != nil {
		return Output{}, err
	}
	all, why := mergeTodos(old, a)
	if why != "" {
		return Output{Text: why + " Nothing was changed.", Error: true}, nil
	}
	if !slices.Equal(old, all) {
		if len(all) == 0 {
			err = todoState.Delete(ctx)
		} else {
			err = todoState.Set(ctx, all)
		}
	}
	return Output{Text: tellTodos(old, all)}, err
}

// mergeTodos returns the list with changes, or what is wrong with them.
func mergeTodos(old []Todo, a todoArgs) (all []Todo, why string) {
	if !a.Replace {
		all = slices.Clone(old)
	}
	given := map[string]bool{}
	for _, t := range a.Todos {
		given[t.ID] = true
	}
	seen := map[string]bool{}
	for i, t := range a.Todos {
		if _, ok := todoMarks[t.Status]; !ok && t.Status != "" {
			return nil, fmt.Sprintf("%q is no status; there are pending, in_progress, completed and cancelled.", t.Status)
		}
		for n := 1; t.ID == ""; n++ { // the first number that no todo has
			if id := strconv.Itoa(n); !given[id] && indexTodo(all, id) < 0 && indexTodo(old, id) < 0 {
				t.ID = id
			}
		}
		if seen[t.ID] {
			return nil, fmt.Sprintf("The id %q is given twice.", t.ID)
		}
		seen[t.ID] = true
		next := Todo{Status: TodoPending}
		if at := indexTodo(old, t.ID); at >= 0 {
			next = old[at]
		}
		next.ID = t.ID
		next.Content, next.Status = cmp.Or(t.Content, next.Content), cmp.Or(t.Status, next.Status)
		if next.Content == "" {
			return nil, fmt.Sprintf("Todo %d, with the id %q, is not in the list; a new one needs its content.", i+1, t.ID)
		}
		if at := indexTodo(all, t.ID); at >= 0 {
			all[at] = next
		} else {
			all = append(all, next)
		}
	}
	if len(all) > maxTodos {
		return nil, fmt.Sprintf("That are %d todos, and %d are allowed; use replace to forget old ones.", len(all), maxTodos)
	}
	return all, ""
}

func indexTodo(all []Todo, id string) int {
	return slices.IndexFunc(all, func(t Todo) bool { return t.ID == id })
}

// tellTodos says what has changed, and shows the list.
func tellTodos(old, all []Todo) string {
	added, edited, removed := 0, 0, 0
	moved := map[TodoStatus]int{}
	for _, t := range all {
		at := indexTodo(old, t.ID)
		switch {
		case at < 0:
			added++
		case old[at].Status != t.Status:
			moved[t.Status]++
		case old[at] != t:
			edited++
		}
	}
	for _, t := range old {
		if indexTodo(all, t.ID) < 0 {
			removed++
		}
	}
	var changes []string
	for _, c := range []struct {
		n    int
		what string
	}{
		{added, "added"}, {moved[TodoPending], "pending again"}, {moved[TodoInProgress], "begun"}, {moved[TodoCompleted], "completed"},
		{moved[TodoCancelled], "cancelled"}, {edited, "reworded"}, {removed, "removed"},
	} {
		if c.n > 0 {
			changes = append(changes, fmt.Sprintf("%d %s", c.n, c.what))
		}
	}
	var out strings.Builder
	switch {
	case len(changes) > 0:
		fmt.Fprintf(&out, "Changed: %s.", strings.Join(changes, ", "))
	case !slices.Equal(old, all):
		out.WriteString("Changed: the order.")
	default:
		out.WriteString("Nothing changed.")
	}
	if len(all) == 0 {
		out.WriteString("\nThe list is empty.")
	}
	for _, t := range all {
		fmt.Fprintf(&out, "\n%s %s: %s", todoMarks[t.Status], t.ID, t.Content)
	}
	return out.String()
}

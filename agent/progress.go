package agent

import (
	"context"
	"encoding/json"
	"slices"
	"sync"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/scrub"
)

type newsKey struct{}

// callNews is what a tool's function reports besides its result.
type callNews struct {
	mu       sync.Mutex // a function may report from several goroutines
	escalate bool
	progress []json.RawMessage
}

// maxProgress is how many reports are kept with a call's result.
const maxProgress = 20

// Progress reports the progress of a tool: live to those who watch, as a
// [perdure.Delta], and the last 20 reports with the call's result. It is for tool
// functions that use no verbs; others call [perdure.Emit].
func Progress(ctx context.Context, v any) {
	told, err := json.Marshal(v)
	if err != nil {
		return
	}
	raw := scrub.From(ctx).JSON(told)
	perdure.Delta(ctx, raw)
	news, _ := ctx.Value(newsKey{}).(*callNews)
	if news == nil || len(raw) > 4<<10 {
		return
	}
	news.mu.Lock()
	defer news.mu.Unlock()
	news.progress = append(news.progress, raw)
	if len(news.progress) > maxProgress {
		news.progress = news.progress[1:]
	}
}

// Escalate ends the [Loop] around the agent after the current child. Call it from a
// tool's function or a [Func].
func Escalate(ctx context.Context) {
	if news, _ := ctx.Value(newsKey{}).(*callNews); news != nil {
		news.mu.Lock()
		defer news.mu.Unlock()
		news.escalate = true
	}
}

// told returns what was reported so far.
func (n *callNews) told() (escalate bool, progress []json.RawMessage) {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.escalate, slices.Clone(n.progress)
}

// ExitLoop is a tool by which a model ends the [Loop] around it.
var ExitLoop = NewTool("exit_loop", "Ends the loop that you are in. Call it when nothing is left to be improved.",
	func(ctx context.Context, _ struct{}) (string, error) {
		Escalate(ctx)
		return "The loop ends when you are done.", nil
	})

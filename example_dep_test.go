package perdure_test

import (
	"context"
	"encoding/json"
	"fmt"
	"sync"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/store/memstore"
)

// ProgressLog collects what an agent did in a long turn. It is resumable, so
// that a restart in the middle does not lose it. It is safe for concurrent
// use, since Dump may be called while it is in use.
type ProgressLog struct {
	mu    sync.Mutex
	steps []string
}

// Record adds a step.
func (l *ProgressLog) Record(step string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.steps = append(l.steps, step)
}

// Steps returns what was recorded.
func (l *ProgressLog) Steps() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return append([]string(nil), l.steps...)
}

type progressState struct {
	Steps []string `json:"steps"`
}

// Dump only reads: it may be called often.
func (l *ProgressLog) Dump(context.Context) (json.RawMessage, error) {
	return json.Marshal(progressState{Steps: l.Steps()})
}

// Load accepts a state without steps, and keys that it does not know: another
// version of the program may have written it.
func (l *ProgressLog) Load(_ context.Context, state json.RawMessage) error {
	var s progressState
	if err := json.Unmarshal(state, &s); err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.steps = s.Steps
	return nil
}

var progressLog = perdure.NewDep("progress_log", func(context.Context) (*ProgressLog, error) {
	return &ProgressLog{}, nil
})

// logged is a step that leaves a line in the log. The change of the log commits
// with the step.
func logged(ctx context.Context, name string) error {
	_, err := perdure.Step(ctx, name, func(ctx context.Context) (bool, error) {
		log, err := progressLog.Get(ctx)
		if err != nil {
			return false, err
		}
		log.Record(name)
		return true, nil
	})
	return err
}

func writeReport(ctx context.Context, _ string) ([]string, error) {
	for _, name := range []string{"search", "read"} {
		if err := logged(ctx, name); err != nil {
			return nil, err
		}
	}
	if _, err := perdure.Ask[bool](ctx, "approve", perdure.Question{Prompt: "Write the report?"}); err != nil {
		return nil, err
	}
	if err := logged(ctx, "write"); err != nil {
		return nil, err
	}
	log, err := progressLog.Get(ctx)
	if err != nil {
		return nil, err
	}
	return log.Steps(), nil
}

// A resumable dependency: the second process makes a new log, which gets the
// state of the first before the flow sees it.
func ExampleNewDep() {
	report := perdure.NewFlow("report", writeReport)
	s := memstore.New()
	one := startNode(s, report)
	run := one.do("", "report", "owls")
	one.stop()

	two := startNode(s, report)
	defer two.stop()
	fmt.Println(string(two.answer(run, true).Output))
	// Output:
	// ["search","read","write"]
}

package kit

import (
	"context"
	"encoding/json"
	"strings"
	"sync"
	"time"

	"github.com/perdure/perdure"
)

// Large is a text that becomes a blob.
var Large = strings.Repeat("large ", 20_000)

// Game keeps the score of a thread, one point a run.
var Game = perdure.NewFlow("game", func(ctx context.Context, player string) (string, error) {
	return perdure.Step(ctx, "score", func(ctx context.Context) (string, error) {
		if err := perdure.NewState[string]("last").Set(ctx, player); err != nil {
			return "", err
		}
		return player, perdure.NewCounter("points").Add(ctx, 1)
	})
})

// Bag is the value of [BagDep].
type Bag struct {
	Mu    sync.Mutex
	Items []string
}

func (b *Bag) Dump(context.Context) (json.RawMessage, error) {
	b.Mu.Lock()
	defer b.Mu.Unlock()
	return json.Marshal(b.Items)
}

func (b *Bag) Load(_ context.Context, raw json.RawMessage) error {
	b.Mu.Lock()
	defer b.Mu.Unlock()
	if string(raw) == "{}" {
		return nil
	}
	return json.Unmarshal(raw, &b.Items)
}

// Items is a list that flows keep in their state.
var Items = perdure.NewList[string]("list")

// BagDep is a resumable dep that keeps items.
var BagDep = perdure.NewDep("bag", func(context.Context) (*Bag, error) { return &Bag{}, nil })

// NamedStep is a step that returns its own name, after a while so that branches have
// an order.
func NamedStep(ctx context.Context, name string, after time.Duration, opts ...perdure.StepOption) error {
	_, err := perdure.Step(ctx, name, func(ctx context.Context) (string, error) {
		time.Sleep(after)
		return name, nil
	}, opts...)
	return err
}

// NamedFlow is a flow without an input, which returns "done".
func NamedFlow(name string, fn func(context.Context) error) perdure.Flow {
	return perdure.NewFlow(name, func(ctx context.Context, _ string) (string, error) { return "done", fn(ctx) })
}

// VirtualStart returns when the run was queued, which in virtual time is known.
func VirtualStart(context.Context) time.Time { return time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC) }

// EchoFlow is a flow that returns its input.
func EchoFlow(name string) perdure.Flow {
	return perdure.NewFlow(name, func(_ context.Context, in string) (string, error) { return in, nil })
}

// AskFlow is a flow that asks once, at /ask, and returns the answer.
func AskFlow(name string, q perdure.Question) perdure.Flow {
	return perdure.NewFlow(name, func(ctx context.Context, _ string) (string, error) {
		return perdure.Ask[string](ctx, "ask", q)
	})
}

// Tone is a word that flows keep in their state.
var Tone = perdure.NewState[string]("tone")

// Count is a number that flows keep in their state.
var Count = perdure.NewCounter("count")

// SetTone is a step that sets the tone.
func SetTone(ctx context.Context, name, v string) error {
	_, err := perdure.Step(ctx, name, func(ctx context.Context) (bool, error) { return true, Tone.Set(ctx, v) })
	return err
}

// Ledger notes its input in the state and in a dep, spends, and returns its key.
var Ledger = perdure.NewFlow("ledger", func(ctx context.Context, in string) (string, error) {
	return perdure.Step(ctx, "note", func(ctx context.Context) (string, error) {
		if strings.HasPrefix(in, "take") {
			return "", nil
		}
		b, err := BagDep.Get(ctx)
		if err != nil {
			return "", err
		}
		b.Mu.Lock()
		b.Items = append(b.Items, in)
		b.Mu.Unlock()
		if err := Items.Append(ctx, in); err != nil {
			return "", err
		}
		return perdure.Key(ctx), perdure.Spend(ctx, "cents", 1)
	})
})

// Hear is a flow that waits for the signal "go" and returns it.
var Hear = perdure.NewFlow("hear", func(ctx context.Context, _ string) (string, error) {
	return perdure.Receive[string](ctx, "word", "go", 0)
})

// NoteInLedger runs [Ledger] to its end, and returns its key and the sequence then.
func (k *Kit) NoteInLedger(thread, text string) (key string, seq uint64) {
	k.T.Helper()
	run := k.WaitForRun(thread, k.StartOn(thread, "ledger", text).ID, perdure.Succeeded)
	NoErr(k.T, json.Unmarshal(run.Output, &key))
	return key, k.MustStateAt(thread, 0).Seq
}

// Asking is a child that asks.
var Asking = perdure.NewFlow("asking", func(ctx context.Context, prompt string) (string, error) {
	return perdure.Ask[string](ctx, "ask", perdure.Question{Prompt: prompt})
})

// FlowOf returns a flow called f without input and output.
func FlowOf(fn func(context.Context) error) perdure.Flow {
	return perdure.NewFlow("f", func(ctx context.Context, _ struct{}) (struct{}, error) { return struct{}{}, fn(ctx) })
}

// AskYesNo asks for a yes or no at a name.
func AskYesNo(ctx context.Context, name string) error {
	_, err := perdure.Ask[bool](ctx, name, perdure.Question{Prompt: name + "?"})
	return err
}

// AtMostOnce returns the options of an at-most-once step with a timeout of a minute.
func AtMostOnce(more ...perdure.StepOption) []perdure.StepOption {
	return append(more, perdure.AtMostOnce(), perdure.Timeout(time.Minute))
}

// Package typescript_test runs the tests of the TypeScript client that need a
// server: in Node.js and in a browser, with servers that are killed.
package typescript_test

import (
	"context"
	_ "embed"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"testing"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/agent"
	"github.com/perdure/perdure/cli"
	"github.com/perdure/perdure/llm/script"
)

// stageMark makes the test binary the program perdure with the flows below, as in
// the tests of the console, whose kit the tests here use.
const stageMark = "PERDURE_CONSOLE_STAGE"

//go:embed testdata/chat.yaml
var chatLines []byte

func TestMain(m *testing.M) {
	if os.Getenv(stageMark) == "" {
		os.Exit(m.Run())
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop)
	os.Exit(cli.Run(ctx, cli.Options{}, stageFlows()...))
}

type refund struct {
	Order  string `json:"order" jsonschema:"number of the order"`
	Amount int    `json:"amount" jsonschema:"in euros"`
}

// stageFlows are an agent that needs approvals, a flow that counts with live
// deltas, and one that fails.
func stageFlows() []perdure.Flow {
	pay := agent.NewTool("refund", "Pays money back to a customer. It cannot be undone.", func(_ context.Context, r refund) (string, error) {
		return fmt.Sprintf("refunded %d EUR for %s", r.Amount, r.Order), nil
	}, agent.NeedsApproval())
	chat := agent.New("clerk", script.Must(script.Parse("chat.yaml", chatLines)), agent.Options{
		Instruction: "You are the clerk of a shop.",
		Tools:       []agent.Tool{pay},
	})
	count := perdure.NewFlow("count", func(ctx context.Context, to int) (int, error) {
		sum := 0
		for i := range to {
			n, err := perdure.Step(ctx, fmt.Sprintf("add-%d", i), func(ctx context.Context) (int, error) {
				perdure.Delta(ctx, fmt.Sprintf("adding %d", i))
				return i, untilNext(ctx)
			})
			if err != nil {
				return 0, err
			}
			sum += n
		}
		return sum, nil
	})
	fail := perdure.NewFlow("fail", func(context.Context, string) (string, error) {
		return "", fmt.Errorf("it cannot be done")
	})
	return []perdure.Flow{agent.NewFlow("chat", chat), count, fail}
}

// untilNext makes a step last a little, so that it can be killed.
func untilNext(ctx context.Context) error {
	select {
	case <-time.After(5 * time.Millisecond):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

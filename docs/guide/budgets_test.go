package guide_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/agent"
	"github.com/perdure/perdure/llm"
	"github.com/perdure/perdure/llm/script"
	"github.com/perdure/perdure/store/memstore"
)

func Example_limits() {
	model := script.New(script.Reply{When: func(*llm.Request) bool { return true }, Calls: []llm.Call{{Name: "think", Args: `{}`}}})
	think := agent.NewTool("think", "Think.", func(context.Context, struct{}) (string, error) { return "hm", nil })
	thinker := agent.New("thinker", model, agent.Options{
		Tools:  []agent.Tool{think},
		Price:  agent.Price{Input: 3_000_000, Output: 15_000_000}, // dollars per million tokens, in millionths
		Limits: agent.Limits{Turns: 5, Tokens: 200_000, Cost: 500_000, Time: 10 * time.Minute},
	})
	p, run := run("think", "Think hard", agent.NewFlow("think", thinker))
	defer p.stop()
	fmt.Println(run.Status, errors.Is(run.Err, agent.ErrLimit))
	// Output:
	// failed true
}

func Example_budget() {
	scrape := perdure.NewFlow("scrape", func(ctx context.Context, pages int) (int, error) {
		for i := range pages {
			_, err := perdure.Step(ctx, fmt.Sprintf("page-%d", i), func(ctx context.Context) (bool, error) {
				return true, perdure.Spend(ctx, "pages", 1)
			})
			if errors.Is(err, perdure.ErrBudget) {
				return i, nil // stop here, with what there is
			}
			if err != nil {
				return 0, err
			}
		}
		return pages, nil
	})
	p := begin(memstore.New(), scrape)
	defer p.stop()
	run := must(p.Start(p.ctx, perdure.StartRequest{Flow: "scrape", Input: 10, Budget: map[string]int64{"pages": 3}}))
	run = must(p.WaitEnd(p.ctx, run.Thread, run.ID))
	fmt.Println(string(run.Output), run.Spent)
	// Output:
	// 3 map[pages:4]
}

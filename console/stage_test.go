package console_test

import (
	"context"
	_ "embed"
	"encoding/json"
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

// stageMark makes the test binary the program perdure with the flows below, so
// that tests in a browser have a server that they can kill.
const stageMark = "PERDURE_CONSOLE_STAGE"

//go:embed testdata/stage.yaml
var stageLines []byte

func TestMain(m *testing.M) {
	if os.Getenv(stageMark) == "" {
		os.Exit(m.Run())
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop)
	os.Exit(cli.Run(ctx, cli.Options{}, append(stageFlows(), troubleFlows()...)...))
}

type stageRefund struct {
	Order   string   `json:"order" jsonschema:"number of the order"`
	Amount  int      `json:"amount" jsonschema:"in euros" schema:"min=1,max=500"`
	Reason  string   `json:"reason,omitempty" jsonschema:"what the customer is told"`
	Express bool     `json:"express,omitempty" jsonschema:"pay within the hour"`
	Tags    []string `json:"tags,omitempty"`
	Account int64    `json:"account,omitempty" jsonschema:"where the money goes"`
}

type stageMail struct {
	To   string `json:"to" jsonschema:"address of the customer"`
	Text string `json:"text"`
}

type stageOrder struct {
	Item     string   `json:"item" jsonschema:"what to order"`
	Count    int      `json:"count" jsonschema:"how many" schema:"min=1,max=100"`
	Delivery string   `json:"delivery,omitempty" schema:"enum=post|courier"`
	Gift     bool     `json:"gift,omitempty" jsonschema:"wrap it"`
	Notes    []string `json:"notes,omitempty"`
}

// stageFlows are flows that ask, talk and take an input with a form.
func stageFlows() []perdure.Flow {
	refund := agent.NewTool("refund", "Pays money back to a customer. It cannot be undone.", func(_ context.Context, r stageRefund) (string, error) {
		done := fmt.Sprintf("refunded %d EUR for %s", r.Amount, r.Order)
		if r.Account != 0 {
			done += fmt.Sprint(" to account ", r.Account)
		}
		return done, nil
	}, agent.WithApproval(agent.Approval{
		Decisions: []string{agent.DecisionApprove, agent.DecisionEdit, agent.DecisionReject, agent.DecisionRespond, agent.DecisionAlways},
		Expires:   26 * time.Hour,
	}))
	mail := agent.NewTool("send_mail", "Sends a mail to a customer.", func(_ context.Context, m stageMail) (string, error) {
		return "sent to " + m.To, nil
	}, agent.NeedsApproval())
	look := agent.NewTool("look_up", "Looks up an order.", func(_ context.Context, in struct {
		Order string `json:"order"`
	}) (map[string]any, error) {
		return map[string]any{"order": in.Order, "item": "tea set, blue", "price": 42, "state": "delivered broken"}, nil
	})
	label := agent.NewTool("print_label", "Prints the label of a parcel.", func(_ context.Context, in struct {
		Order string `json:"order"`
	}) (string, error) {
		return "printed " + in.Order, nil
	}, agent.Needs(agent.Credential{Name: "printer", Prompt: "What is the password of the label printer?"}))
	desk := agent.New("clerk", script.Must(script.Parse("stage.yaml", stageLines)), agent.Options{
		Instruction: "You are the clerk of a shop.",
		Tools:       []agent.Tool{look, refund, mail, label},
	})
	order := perdure.NewFlow("order", func(ctx context.Context, o stageOrder) (string, error) {
		return perdure.Step(ctx, "place", func(context.Context) (string, error) { return fmt.Sprintf("%d × %s", o.Count, o.Item), nil })
	})
	survey := perdure.NewFlow("survey", func(ctx context.Context, about string) (map[string]any, error) {
		return perdure.Ask[map[string]any](ctx, "opinion", perdure.Question{
			Kind: "input", Prompt: "How was " + about + "?",
			Schema: json.RawMessage(`{"type":"object","properties":{
				"stars":{"type":"integer","minimum":1,"maximum":5,"description":"five is best"},
				"words":{"type":"string","description":"in your own words"}},"required":["stars"],"additionalProperties":false}`),
		})
	})
	gate := perdure.NewFlow("release", func(ctx context.Context, version string) (string, error) {
		a, err := perdure.Ask[perdure.Answer](ctx, "go", perdure.Question{Kind: "approval", Prompt: "Release " + version + " to everyone?",
			Data: map[string]any{"version": version, "tests": "1204 passed", "changes": []string{"a faster list", "fewer mails"}}, Decisions: []string{"approve", "reject"}, Expires: 50 * time.Minute})
		return a.Decision, err
	})
	hold := perdure.NewFlow("hold", func(ctx context.Context, file string) (string, error) {
		if _, err := perdure.Step(ctx, "prepare", func(context.Context) (string, error) { return "ready", nil }); err != nil {
			return "", err
		}
		return perdure.Step(ctx, "hold", func(ctx context.Context) (string, error) { return "released", untilFile(ctx, file) })
	})
	tally := perdure.NewFlow("tally", func(ctx context.Context, steps int) (int, error) {
		for n := range steps {
			if _, err := perdure.Step(ctx, fmt.Sprint("count-", n), func(context.Context) (int, error) { return n, nil }); err != nil {
				return n, err
			}
		}
		return steps, nil
	})
	parcel := perdure.NewFlow("parcel", func(ctx context.Context, file string) (string, error) {
		if _, err := perdure.Step(ctx, "pack", func(ctx context.Context) (string, error) { return "packed", untilFile(ctx, file) }); err != nil {
			return "", err
		}
		if _, err := perdure.Step(ctx, "label", func(ctx context.Context) (string, error) { return "labelled", untilFile(ctx, file+"-label") }); err != nil {
			return "", err
		}
		return perdure.Receive[string](ctx, "wait", "delivered", 0)
	})
	return []perdure.Flow{agent.NewFlow("desk", desk), order, survey, gate, hold, tally, parcel}
}

// untilFile waits until there is such a file in the folder of the server.
func untilFile(ctx context.Context, name string) error {
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		if _, err := os.Stat(name); err == nil {
			return nil
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

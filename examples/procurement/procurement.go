// Package procurement buys what an invoice offers, when three people agree: the
// manager to the budget, compliance to the supplier, and the CFO by a signature.
//
//	go run ./examples/procurement/run
//
// That takes days, over which the process may be restarted as often as one
// likes: no question is asked twice, and nobody has to keep anything in mind. Who
// does not answer within a day is passed over, and a deputy is asked. If the
// deputy does not answer either, that is a no.
//
// Two agents of a model do the paperwork: one reads the invoice, and one orders,
// with a tool that never orders twice.
package procurement

import (
	"cmp"
	"context"
	_ "embed"
	"errors"
	"fmt"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/agent"
	"github.com/perdure/perdure/examples/internal/pace"
	"github.com/perdure/perdure/llm"
	"github.com/perdure/perdure/llm/script"
)

//go:embed script.yaml
var lines []byte

// Invoice is one that the script can read.
const Invoice = `Invoice 2207
Supplier: S-204
Item: 24 laptops
Total: 31200 EUR
Country: same as ours`

// Options of the flow. The zero value is ready to use.
type Options struct {
	Model    llm.Model     // of both agents; nil is a script, which needs no network
	Pace     time.Duration // between two pieces of a reply
	Patience time.Duration // how long a person has to answer; 0 is a day
	Supplier Supplier      // who takes the orders; nil is an imaginary one, which forgets them
}

// Offer is what the invoice comes to.
type Offer struct {
	Supplier string `json:"supplier"`
	Item     string `json:"item"`
	Total    int    `json:"total" jsonschema:"in euros" schema:"min=1"`
	Summary  string `json:"summary" jsonschema:"one sentence for those who decide"`
}

// Outcome is what came of the invoice.
type Outcome struct {
	Ordered bool   `json:"ordered"`
	Letter  string `json:"letter,omitempty"` // what the buyer wrote
	Why     string `json:"why,omitempty"`    // it was not ordered
}

// What the thread learns on the way, listed apart from its state.
var (
	supplier = perdure.NewFact[string]("supplier")
	total    = perdure.NewFact[int]("total")
	decided  = perdure.NewFact[[]string]("decided")
)

// Flow returns the flow "procurement". Its input is the text of an invoice, its
// output an Outcome.
func Flow(o Options) perdure.Flow {
	if o.Model == nil {
		o.Model = script.Must(script.Parse("procurement/script.yaml", lines))
	}
	o.Patience = cmp.Or(o.Patience, 24*time.Hour)
	model := pace.Model(o.Model, o.Pace)
	reader := agent.New("reader", model, agent.Options{
		Instruction: "You read invoices. Say what is offered, by whom, and what it costs.",
		Output:      agent.OutputOf[Offer](),
	})
	buyer := agent.New("buyer", model, agent.Options{
		Instruction: "You are the buyer. Order what was approved, once, and write a letter that confirms it.",
		Tools:       []agent.Tool{orderTool(o.Supplier)},
	})
	return perdure.NewFlow("procurement", func(ctx context.Context, invoice string) (Outcome, error) {
		if err := perdure.Plan(ctx, "budget", "compliance", "signature"); err != nil {
			return Outcome{}, err
		}
		offer, err := agent.RunTo[Offer](ctx, reader, invoice)
		if err != nil {
			return Outcome{}, err
		}
		if _, err := perdure.Step(ctx, "learn", func(ctx context.Context) (bool, error) {
			return true, errors.Join(supplier.Set(ctx, offer.Supplier), total.Set(ctx, offer.Total))
		}); err != nil {
			return Outcome{}, err
		}
		for _, a := range approvals {
			ok, err := perdure.Step(ctx, a.name, func(ctx context.Context) (bool, error) { return a.get(ctx, offer, o.Patience) })
			if err != nil {
				return Outcome{}, err
			}
			if !ok {
				return Outcome{Why: "no " + a.name}, nil
			}
		}
		letter, err := agent.Run(ctx, buyer, fmt.Sprintf("Approved: %s of %s for %d EUR.", offer.Item, offer.Supplier, offer.Total))
		return Outcome{Ordered: err == nil, Letter: letter}, err
	})
}

// approval is a decision that is needed.
type approval struct {
	name   string
	prompt string
	who    [2]string // who is asked, and who if that one does not answer
}

var approvals = []approval{
	{"budget", "Is there a budget for it?", [2]string{"manager", "deputy-manager"}},
	{"compliance", "May we buy from this supplier?", [2]string{"compliance", "legal"}},
	{"signature", "Do you sign the order?", [2]string{"cfo", "ceo"}},
}

// get asks those who may decide, one after the other, and notes who decided.
func (a approval) get(ctx context.Context, offer Offer, patience time.Duration) (bool, error) {
	q := perdure.Question{
		Kind: agent.KindApproval, Prompt: a.prompt + " " + offer.Summary, Data: map[string]any{"summary": offer},
		Decisions: []string{agent.DecisionApprove, agent.DecisionReject},
		Expires:   patience,
	}
	q.Who = a.who[:1]
	answer, err := perdure.Ask[perdure.Answer](ctx, "ask", q)
	if errors.Is(err, perdure.ErrExpired) {
		q.Who = a.who[1:]
		q.Default = &perdure.Answer{Decision: agent.DecisionReject, Message: "Nobody answered."}
		answer, err = perdure.Ask[perdure.Answer](ctx, "ask-deputy", q)
	}
	if err != nil {
		return false, err
	}
	return perdure.Step(ctx, "note", func(ctx context.Context) (bool, error) {
		by := answer.By
		if answer.Expired {
			by = "nobody"
		}
		all, err := decided.Get(ctx)
		if err != nil {
			return false, err
		}
		all = append(all, fmt.Sprintf("%s: %s by %s", a.name, answer.Decision, by))
		return answer.Decision == agent.DecisionApprove, decided.Set(ctx, all)
	})
}

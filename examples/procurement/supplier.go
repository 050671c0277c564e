package procurement

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/agent"
)

// Order is what is ordered.
type Order struct {
	Supplier string `json:"supplier" schema:"minlen=1"`
	Item     string `json:"item" schema:"minlen=1"`
	Total    int    `json:"total" jsonschema:"in euros" schema:"min=1"`
}

// Supplier takes orders. It does not notice that an order comes twice, so the
// tool takes care that it does not.
type Supplier interface {
	// Order places an order, with a key to find it again, and returns its number.
	Order(ctx context.Context, key string, o Order) (number string, err error)
	// Find returns the number of the order with a key, and "" if there is none.
	Find(ctx context.Context, key string) (number string, err error)
}

// orderTool places orders at most once. After a crash it finds out by the key
// whether the order arrived; if that cannot be said, a person is asked.
func orderTool(s Supplier) agent.Tool {
	if s == nil {
		s = forgetful{}
	}
	return agent.NewTool("order", "Places an order and returns its number.",
		func(ctx context.Context, o Order) (string, error) { return s.Order(ctx, perdure.Key(ctx), o) },
		agent.AtMostOnce(30*time.Second),
		agent.Reconcile(func(ctx context.Context, o Order) (string, perdure.Outcome, error) {
			number, err := s.Find(ctx, perdure.Key(ctx))
			switch {
			case err != nil:
				return "", perdure.OutcomeUnknown, err
			case number == "":
				return "", perdure.OutcomeNotDone, nil
			}
			return number, perdure.OutcomeDone, nil
		}))
}

// forgetful is a supplier without a memory.
type forgetful struct{}

func (forgetful) Order(ctx context.Context, key string, o Order) (string, error) { return "PO-1", nil }

func (forgetful) Find(ctx context.Context, key string) (string, error) {
	return "", errors.New("the supplier has forgotten whether there was an order")
}

// FileSupplier is a supplier whose book of orders is a file, a line each.
func FileSupplier(path string) Supplier { return book(path) }

type book string

type entry struct {
	Number string `json:"number"`
	Key    string `json:"key"`
	Order
}

func (b book) Order(ctx context.Context, key string, o Order) (string, error) {
	all, err := b.read()
	if err != nil {
		return "", err
	}
	e := entry{fmt.Sprintf("PO-%d", len(all)+1), key, o}
	line, err := json.Marshal(e)
	if err != nil {
		return "", err
	}
	f, err := os.OpenFile(string(b), os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o644)
	if err != nil {
		return "", err
	}
	_, err = f.Write(append(line, '\n'))
	return e.Number, errors.Join(err, f.Close())
}

func (b book) Find(ctx context.Context, key string) (string, error) {
	all, err := b.read()
	for _, e := range all {
		if e.Key == key {
			return e.Number, nil
		}
	}
	return "", err
}

func (b book) read() (all []entry, err error) {
	data, err := os.ReadFile(string(b))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	for line := range strings.Lines(string(bytes.TrimSpace(data))) {
		var e entry
		if err := json.Unmarshal([]byte(line), &e); err != nil {
			return nil, fmt.Errorf("the book of orders %s: %w", b, err)
		}
		all = append(all, e)
	}
	return all, nil
}

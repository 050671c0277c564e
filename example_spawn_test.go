package perdure_test

import (
	"context"
	"errors"
	"fmt"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/store/memstore"
)

// A run starts children, each on a thread of its own, which any worker that has
// their flow may execute. Join waits for them; the run is suspended meanwhile.
func ExampleSpawn() {
	research := perdure.NewFlow("research", func(ctx context.Context, topic string) (string, error) {
		return perdure.Step(ctx, "look-up", func(context.Context) (string, error) {
			return "all about " + topic, nil
		})
	})
	report := perdure.NewFlow("report", func(ctx context.Context, topics []string) ([]string, error) {
		var children []*perdure.Child
		for i, topic := range topics {
			c, err := perdure.Spawn(ctx, fmt.Sprint("research-", i), "research", topic)
			if err != nil {
				return nil, err
			}
			children = append(children, c)
		}
		var found []string
		for i, c := range children {
			text, err := perdure.Join[string](ctx, fmt.Sprint("read-", i), c)
			if err != nil {
				return nil, err
			}
			found = append(found, text)
		}
		return found, nil
	})
	node := startNode(memstore.New(), report, research)
	defer node.stop()
	run := node.end(node.do("", "report", []string{"cats", "dogs"}))
	fmt.Println(string(run.Output))
	for _, c := range run.Children {
		fmt.Println(c.Path, c.Flow, c.Joined)
	}
	// Output:
	// ["all about cats","all about dogs"]
	// /research-0 research true
	// /research-1 research true
}

// The failure of a child is an error of Join, which matches ErrChild and the
// codes of the child's own failure.
func ExampleJoin() {
	errSoldOut := perdure.Coded("sold-out", errors.New("sold out"))
	buy := perdure.NewFlow("buy", func(context.Context, string) (string, error) { return "", errSoldOut })
	shop := perdure.NewFlow("shop", func(ctx context.Context, item string) (string, error) {
		c, err := perdure.Spawn(ctx, "order", "buy", item)
		if err != nil {
			return "", err
		}
		_, err = perdure.Join[string](ctx, "receipt", c)
		if errors.Is(err, errSoldOut) {
			return fmt.Sprint("no ", item, " today, ", errors.Is(err, perdure.ErrChild)), nil
		}
		return "bought", err
	})
	node := startNode(memstore.New(), shop, buy)
	defer node.stop()
	run := node.end(node.do("", "shop", "bread"))
	fmt.Println(string(run.Output))
	// Output:
	// "no bread today, true"
}

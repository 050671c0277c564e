package perdure_test

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/store/memstore"
)

// The state of a dep is also saved inside a long step, every few seconds. When
// such a step is cut off it runs again, finds its own progress and skips it.
func ExampleResumable() {
	stuck := true
	study := perdure.NewFlow("study", func(ctx context.Context, papers []string) (int, error) {
		return perdure.Step(ctx, "read-all", func(ctx context.Context) (int, error) {
			log, err := progressLog.Get(ctx) // the ProgressLog of ExampleNewDep
			if err != nil {
				return 0, err
			}
			for _, paper := range papers[len(log.Steps()):] {
				fmt.Println("reading", paper)
				if paper == "B" && stuck {
					<-ctx.Done() // its process is shut down meanwhile
					return 0, ctx.Err()
				}
				log.Record(paper)
			}
			return len(papers), nil
		})
	})
	ctx := context.Background()
	s := memstore.New()
	one := startNodeWith(s, perdure.Options{DumpInterval: time.Millisecond, Grace: time.Millisecond}, study)
	run, err := one.Start(ctx, perdure.StartRequest{Flow: "study", Input: []string{"A", "B", "C"}})
	noErr(err)
	for e, err := range one.Events(ctx, run.Thread, perdure.EventOptions{}) {
		noErr(err)
		at, err := one.StateAt(ctx, run.Thread, e.Seq)
		noErr(err)
		if strings.Contains(string(at.Deps["progress_log"]), "A") {
			break // paper A is saved
		}
	}
	one.stop()
	stuck = false

	two := startNode(s, study)
	defer two.stop()
	fmt.Println(string(two.wait(run).Output), "papers")
	// Output:
	// reading A
	// reading B
	// reading B
	// reading C
	// 3 papers
}

// PerNode gives each place its own value: here one log for each branch.
func ExamplePerNode() {
	notes := perdure.NewDep("notes", func(context.Context) (*ProgressLog, error) {
		return &ProgressLog{}, nil
	}, perdure.PerNode())
	debate := perdure.NewFlow("debate", func(ctx context.Context, topic string) (string, error) {
		g := perdure.NewGroup(ctx)
		for _, side := range []string{"pro", "contra"} {
			g.Go(side, func(ctx context.Context) error {
				log, err := notes.Get(ctx) // the place is where Get is called
				if err != nil {
					return err
				}
				_, err = perdure.Step(ctx, "argue", func(context.Context) (bool, error) {
					log.Record(side + " " + topic)
					return true, nil
				})
				return err
			})
		}
		return "done", g.Wait()
	})
	node := startNode(memstore.New(), debate)
	defer node.stop()
	run := node.do("", "debate", "owls")
	now, err := node.StateAt(context.Background(), run.Thread, 0)
	noErr(err)
	for _, key := range slices.Sorted(maps.Keys(now.Deps)) {
		fmt.Println(key, string(now.Deps[key]))
	}
	// Output:
	// notes@/contra {"steps":["contra owls"]}
	// notes@/pro {"steps":["pro owls"]}
}

// Shared says that the branches of a group mean one value.
func ExampleShared() {
	notes := perdure.NewDep("notes", func(context.Context) (*ProgressLog, error) {
		return &ProgressLog{}, nil
	}, perdure.Shared())
	team := perdure.NewFlow("team", func(ctx context.Context, names []string) (int, error) {
		g := perdure.NewGroup(ctx)
		for _, name := range names {
			g.Go(name, func(ctx context.Context) error {
				_, err := perdure.Step(ctx, "work", func(ctx context.Context) (bool, error) {
					log, err := notes.Get(ctx)
					if err != nil {
						return false, err
					}
					log.Record(name)
					return true, nil
				})
				return err
			})
		}
		if err := g.Wait(); err != nil {
			return 0, err
		}
		log, err := notes.Get(ctx)
		if err != nil {
			return 0, err
		}
		return len(log.Steps()), nil
	})
	node := startNode(memstore.New(), team)
	defer node.stop()
	fmt.Println(string(node.do("", "team", []string{"ann", "bob", "cat"}).Output), "in one log")
	// Output:
	// 3 in one log
}

// WasKey adopts what a dep saved under its old key. The state lives on from
// run to run.
func ExampleWasKey() {
	diary := func(key string, opts ...perdure.DepOption) perdure.Flow {
		log := perdure.NewDep(key, func(context.Context) (*ProgressLog, error) { return &ProgressLog{}, nil }, opts...)
		return perdure.NewFlow("diary", func(ctx context.Context, line string) ([]string, error) {
			return perdure.Step(ctx, "write", func(ctx context.Context) ([]string, error) {
				l, err := log.Get(ctx)
				if err != nil {
					return nil, err
				}
				l.Record(line)
				return l.Steps(), nil
			})
		})
	}
	s := memstore.New()
	one := startNode(s, diary("log"))
	fmt.Println(string(one.do("ann", "diary", "monday").Output))
	one.stop()

	two := startNode(s, diary("diary", perdure.WasKey("log"))) // the next version of the program
	defer two.stop()
	fmt.Println(string(two.do("ann", "diary", "tuesday").Output))
	// Output:
	// ["monday"]
	// ["monday","tuesday"]
}

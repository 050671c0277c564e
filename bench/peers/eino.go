package main

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/cloudwego/eino/compose"
	"github.com/cloudwego/eino/schema"
)

const einoNotes = "a graph with one node in a loop and its results in the graph's state. eino stores a checkpoint only when a graph is interrupted, so the graph is interrupted after each step and invoked again (a node after the loop lets it be interrupted after the last step too); a checkpoint is the whole state. eino brings no store: the one here writes a file, syncs it, renames it and syncs the folder."

type einoPeer struct {
	graph compose.Runnable[int, int]
}

// einoState is the state of the graph.
type einoState struct{ Results []string }

func init() { schema.RegisterName[*einoState]("peers_state") }

func openEino(ctx context.Context, dir string) (peer, error) {
	g := compose.NewGraph[int, int](compose.WithGenLocalState(func(context.Context) *einoState { return &einoState{} }))
	step := compose.InvokableLambda(func(ctx context.Context, left int) (int, error) {
		tick()
		return left - 1, compose.ProcessState(ctx, func(_ context.Context, s *einoState) error {
			s.Results = append(s.Results, result)
			return nil
		})
	})
	next := func(_ context.Context, left int) (string, error) {
		if left > 0 {
			return "step", nil
		}
		return "after", nil
	}
	after := compose.InvokableLambda(func(_ context.Context, left int) (int, error) { return left, nil })
	err := errors.Join(
		g.AddLambdaNode("step", step),
		g.AddLambdaNode("after", after),
		g.AddEdge(compose.START, "step"),
		g.AddBranch("step", compose.NewGraphBranch(next, map[string]bool{"step": true, "after": true})),
		g.AddEdge("after", compose.END))
	if err != nil {
		return nil, err
	}
	compiled, err := g.Compile(ctx, compose.WithCheckPointStore(einoFiles(dir)), compose.WithInterruptAfterNodes([]string{"step"}), compose.WithMaxRunSteps(1<<20))
	return einoPeer{compiled}, err
}

func (p einoPeer) run(ctx context.Context, id string, steps int) error {
	for {
		_, err := p.graph.Invoke(ctx, steps, compose.WithCheckPointID(id))
		if _, interrupted := compose.ExtractInterruptInfo(err); !interrupted {
			return err
		}
	}
}

// suspend leaves a run of one more step at its last interrupt but one.
func (p einoPeer) suspend(ctx context.Context, id string, steps int) error {
	for range steps {
		_, err := p.graph.Invoke(ctx, steps+1, compose.WithCheckPointID(id))
		if _, interrupted := compose.ExtractInterruptInfo(err); !interrupted {
			return errors.Join(errors.New("the graph is not interrupted"), err)
		}
	}
	return nil
}

func (p einoPeer) wake(ctx context.Context, id string) error { return p.run(ctx, id, 0) }

func (einoPeer) setting(context.Context) (string, error) {
	return "fsync of file and folder at each checkpoint", nil
}

// einoFiles is a folder of checkpoints.
type einoFiles string

func (dir einoFiles) Get(_ context.Context, id string) ([]byte, bool, error) {
	data, err := os.ReadFile(filepath.Join(string(dir), id))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, false, nil
	}
	return data, err == nil, err
}

func (dir einoFiles) Set(_ context.Context, id string, data []byte) error {
	name := filepath.Join(string(dir), id)
	f, err := os.Create(name + ".new")
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	if err = errors.Join(err, f.Sync(), f.Close()); err != nil {
		return err
	}
	if err := os.Rename(name+".new", name); err != nil {
		return err
	}
	folder, err := os.Open(string(dir))
	if err != nil {
		return err
	}
	return errors.Join(folder.Sync(), folder.Close())
}

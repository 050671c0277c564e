package files_test

import (
	"context"
	"fmt"
	"log"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/agent"
	"github.com/perdure/perdure/agent/files"
	"github.com/perdure/perdure/store/memstore"
)

// runFlow runs a flow to its end and returns the thread's state.
func runFlow(fn func(ctx context.Context, in string) (string, error)) *perdure.Checkpoint {
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	rt, err := perdure.New(ctx, memstore.New(), perdure.Options{}, perdure.NewFlow("example", fn))
	if err != nil {
		log.Fatal(err)
	}
	go func() { _ = rt.Work(ctx) }()
	run, err := rt.Start(ctx, perdure.StartRequest{Thread: "thread-1", Flow: "example", Input: ""})
	if err == nil {
		run, err = rt.WaitEnd(ctx, run.Thread, run.ID)
	}
	if err == nil {
		err = run.Err
	}
	if err != nil {
		log.Fatal(err)
	}
	c, err := rt.StateAt(ctx, "thread-1", 0)
	if err != nil {
		log.Fatal(err)
	}
	return c
}

// Files of the state are written in steps, and read from outside at any time.
func ExampleState() {
	fs := files.State()
	state := runFlow(func(ctx context.Context, _ string) (string, error) {
		return perdure.Step(ctx, "write", func(ctx context.Context) (string, error) {
			return "done", fs.Write(ctx, "/notes/plan.md", "# Plan\n")
		})
	})
	all, err := files.At(state.State)
	if err != nil {
		log.Fatal(err)
	}
	for _, f := range all {
		fmt.Printf("%s has %d bytes: %q\n", f.Path, f.Size, f.Text)
	}
	// Output: /notes/plan.md has 7 bytes: "# Plan\n"
}

// What is below /project is in a folder of the machine and stays when the
// thread is rewound; the rest is in the thread's state.
func ExampleComposite() {
	fs := files.Composite(map[string]files.FS{
		"/project": files.Disk("/srv/project"),
	}, files.State())
	for _, tool := range agent.FileTools(fs) {
		fmt.Println(tool.Name())
	}
	// Output:
	// ls
	// read_file
	// write_file
	// edit_file
	// delete_file
	// glob
	// grep
}

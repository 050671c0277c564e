package perdure_test

import (
	"bytes"
	"context"
	"fmt"
	"io"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/store/memstore"
)

// orderFlow is the flow of these examples.
func orderFlow(steps ...string) perdure.Flow {
	return perdure.NewFlow("order", func(ctx context.Context, item string) (string, error) {
		for _, name := range steps {
			if _, err := perdure.Step(ctx, name, func(context.Context) (string, error) { return item, nil }); err != nil {
				return "", err
			}
		}
		return item + " is on its way", nil
	})
}

// recordOrder runs the flow once on a thread "t".
func recordOrder() *exampleNode {
	n := startNode(memstore.New(), orderFlow("pack", "ship"))
	n.do("t", "order", "a lamp")
	return n
}

// A thread is checked entry by entry.
func ExampleRuntime_Verify() {
	rt := recordOrder()
	defer rt.stop()
	v, err := rt.Verify(context.Background(), "t")
	noErr(err)
	fmt.Println(v.OK(), v.Good)
	// Output: true 6
}

// A redacted export shows that a thread is as it was, and nothing of what it
// says.
func ExampleRuntime_Export() {
	rt := recordOrder()
	defer rt.stop()
	var file bytes.Buffer
	noErr(rt.Export(context.Background(), "t", &file, perdure.ExportOptions{Redact: true}))
	fmt.Println("a lamp?", bytes.Contains(file.Bytes(), []byte("a lamp")))

	v, err := perdure.VerifyExport(bytes.NewReader(file.Bytes()))
	fmt.Println(v.OK(), v.Good, err)

	changed := bytes.Replace(file.Bytes(), []byte("/ship"), []byte("/keep"), 1)
	v, err = perdure.VerifyExport(bytes.NewReader(changed))
	fmt.Println(v.Problem, err)
	// Output:
	// a lamp? false
	// true 6 <nil>
	// line 6: entry 5: its hash does not follow from its bytes and the entry before it; the entries up to 4 are good <nil>
}

// A thread is taken elsewhere.
func ExampleRuntime_Import() {
	rt := recordOrder()
	defer rt.stop()
	elsewhere, err := perdure.New(context.Background(), memstore.New(), perdure.Options{}, orderFlow("pack", "ship"))
	noErr(err)
	rd, w := io.Pipe()
	go func() { w.CloseWithError(rt.Export(context.Background(), "t", w, perdure.ExportOptions{})) }()
	id, err := elsewhere.Import(context.Background(), rd, perdure.ImportOptions{As: "copy"})
	noErr(err)
	run, err := elsewhere.GetRun(context.Background(), id, "")
	fmt.Println(id, run.Status, string(run.Output), err)
	// Output: copy succeeded "a lamp is on its way" <nil>
}

// What ran yesterday is held against the code of today. In a test,
// perduretest.Replay does it with a file.
func ExampleReplay() {
	rt := recordOrder()
	defer rt.stop()
	var file bytes.Buffer
	noErr(rt.Export(context.Background(), "t", &file, perdure.ExportOptions{}))
	today := orderFlow("pack", "insure", "ship")
	r, err := perdure.Replay(context.Background(), &file, today)
	noErr(err)
	fmt.Println(r.OK())
	fmt.Println(r.Runs[0].Problem)
	// Output:
	// false
	// in /:
	//   step "pack"
	// - step "ship"
	// + step "insure"
}

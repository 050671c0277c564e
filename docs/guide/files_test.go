package guide_test

import (
	"bytes"
	"fmt"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/agent"
	"github.com/perdure/perdure/agent/files"
	"github.com/perdure/perdure/llm"
	"github.com/perdure/perdure/llm/script"
	"github.com/perdure/perdure/store/memstore"
)

func Example_files() {
	model := script.New(
		script.Call("write_file", `{"path": "/report.md", "text": "# Report\n"}`),
		script.Say("It is in /report.md."),
	)
	work := files.Composite(map[string]files.FS{
		"/project":  files.Disk("/srv/project"), // a folder of the machine; nothing escapes it
		"/memories": files.Memory("writer"),     // the user's, on all threads
	}, files.State()) // the rest: in the thread, forked and rewound with it
	writer := agent.New("writer", model, agent.Options{Files: work})
	p, run := run("write", "Write a report", agent.NewFlow("write", writer))
	defer p.stop()
	for _, f := range must(files.At(must(p.StateAt(p.ctx, run.Thread, 0)).State)) {
		fmt.Printf("%s: %q\n", f.Path, f.Text)
	}
	// Output:
	// /report.md: "# Report\n"
}

func Example_images() {
	model := script.New(script.Say("It is a receipt over 42 €."))
	reader := agent.NewFlow("read", agent.New("reader", model, agent.Options{}))
	p := begin(memstore.New(), reader)
	defer p.stop()

	up := must(p.Upload(p.ctx, bytes.NewReader(receipt), perdure.UploadRequest{Name: "receipt.png", MIME: "image/png"}))
	run := must(p.Start(p.ctx, perdure.StartRequest{
		Flow: "read",
		Input: []llm.Part{
			llm.Text("What is this?"),
			{Media: &llm.Media{Blob: up.Blob, MIME: up.MIME, Name: up.Name}},
		},
		Attach: []string{up.ID},
	}))
	run = must(p.WaitEnd(p.ctx, run.Thread, run.ID))
	fmt.Println(must(perdure.Output[string](run)))
	// Output:
	// It is a receipt over 42 €.
}

// receipt is the smallest PNG.
var receipt = []byte("\x89PNG\r\n\x1a\n\x00\x00\x00\rIHDR\x00\x00\x00\x01\x00\x00\x00\x01\x08\x06\x00\x00\x00\x1f\x15\xc4\x89\x00\x00\x00\nIDATx\x9cc\x00\x01\x00\x00\x05\x00\x01\r\n-\xb4\x00\x00\x00\x00IEND\xaeB`\x82")

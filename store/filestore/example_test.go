package filestore_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	"github.com/perdure/perdure/store/filestore"
)

// A journal's file can be read by a person, and by any program that reads
// JSON lines.
func Example() {
	ctx := context.Background()
	dir, err := os.MkdirTemp("", "")
	if err != nil {
		panic(err)
	}
	defer os.RemoveAll(dir)

	s, err := filestore.Open(ctx, dir, filestore.Options{})
	if err != nil {
		panic(err)
	}
	defer s.Close()
	s.Append(ctx, "greeting", 0, []byte(`{"say":"hello"}`))
	s.Append(ctx, "greeting", 1, []byte(`{"say":"how are you"}`), []byte("\x00\x01\xff"))

	files, _ := filepath.Glob(filepath.Join(dir, "journals", "*", "*"))
	for _, file := range files {
		content, _ := os.ReadFile(file)
		fmt.Print(filepath.Base(file), "\n", string(content))
	}
	// Output:
	// greeting-18f6b0200b6fd32ce4e85b6c841f7224.jsonl
	// {"perdure":"journal","format":1,"name":"greeting","crc":"bdb31bcb"}
	// {"head":                   3,"end":                 413,"crc":"ad97d950"}
	// {"head":                   1,"end":                 282,"crc":"413c9712"}
	// {"seq":1,"part":1,"of":1,"data":{"say":"hello"},"crc":"b2df1bc5"}
	// {"seq":2,"part":1,"of":2,"data":{"say":"how are you"},"crc":"c3d8423f"}
	// {"seq":3,"part":2,"of":2,"base64":"AAH/","crc":"d8ad200a"}
}

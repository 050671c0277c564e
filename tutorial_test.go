package perdure_test

import (
	"fmt"
	"go/doc/comment"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestTutorialCompiles builds the code of the package comment.
func TestTutorialCompiles(t *testing.T) {
	file, err := parser.ParseFile(token.NewFileSet(), "doc.go", nil, parser.ParseComments)
	if err != nil {
		t.Fatal(err)
	}
	// A folder of this module, so that the kernel is found without a network.
	dir, err := os.MkdirTemp(".", "_tutorial-") // which ./... passes over
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(dir)
	var packages []string
	snippets := `package snippets

import (
	"context"
	"fmt"
	"time"

	"github.com/perdure/perdure"
)

var _ = time.Second

func fetch(context.Context, string, string) (string, error) { return fmt.Sprint(), nil }
`
	for i, block := range new(comment.Parser).Parse(file.Doc.Text()).Content {
		code, ok := block.(*comment.Code)
		if !ok {
			continue
		}
		if strings.HasPrefix(code.Text, "package main") {
			program := fmt.Sprintf("program%d", i)
			packages = append(packages, "./"+dir+"/"+program)
			writeFile(t, filepath.Join(dir, program, "main.go"), code.Text)
			if lines := strings.Count(code.Text[strings.Index(code.Text, "func "):], "\n"); lines > 45 {
				t.Errorf("the program has %d lines; the first one is to be short", lines)
			}
			continue
		}
		snippets += fmt.Sprintf("\nfunc snippet%d(ctx context.Context, rt *perdure.Runtime) error {\n%s\nreturn nil\n}\n", i, code.Text)
	}
	if len(packages) == 0 {
		t.Error("the tutorial has no program")
	}
	writeFile(t, filepath.Join(dir, "snippets", "snippets.go"), snippets)
	goCmd(t, append([]string{"vet", "./" + dir + "/snippets"}, packages...)...)
}

func writeFile(t *testing.T, name, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(name), 0o777); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(name, []byte(text), 0o666); err != nil {
		t.Fatal(err)
	}
}

package cli

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/perdure/perdure/cli/internal/exit"
)

// TestSaveFile: who is killed while a file is written leaves none of its name, and no
// file is overwritten, even if it is made meanwhile.
func TestSaveFile(t *testing.T) {
	dir := t.TempDir()
	name := filepath.Join(dir, "receipt.json")
	if n, err := saveFile(name, func(w io.Writer) error {
		if _, err := os.Lstat(name); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("a kill leaves a file: %v", err)
		}
		_, err := io.WriteString(w, "mine")
		return err
	}); err != nil || n != 4 {
		t.Fatal(n, err)
	}
	other := filepath.Join(dir, "other.json")
	_, err := saveFile(other, func(io.Writer) error { return os.WriteFile(other, []byte("theirs"), 0o600) })
	if exit.Code(err) != exit.BadUsage || !strings.Contains(err.Error(), "exists") {
		t.Errorf("a file that was made meanwhile: %v", err)
	}
	failed := errors.New("failed")
	if _, err := saveFile(filepath.Join(dir, "none.json"), func(io.Writer) error { return failed }); !errors.Is(err, failed) {
		t.Error(err)
	}
	for name, want := range map[string]string{name: "mine", other: "theirs"} {
		if text, err := os.ReadFile(name); err != nil || string(text) != want {
			t.Errorf("%s has %q, %v", name, text, err)
		}
	}
	if files, err := os.ReadDir(dir); err != nil || len(files) != 2 {
		t.Errorf("left are %v, %v", files, err)
	}
}

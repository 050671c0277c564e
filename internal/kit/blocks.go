package kit

import (
	"fmt"
	"os"
	"strings"
	"testing"
)

// Block is a block of code in a page of the documentation.
type Block struct {
	Page, Lang string
	Line       int // of its first fence
	Text       string
}

// Where returns the page and the line, for messages.
func (b Block) Where() string { return fmt.Sprintf("%s:%d", b.Page, b.Line) }

// Blocks returns the blocks of a page.
func Blocks(t testing.TB, page string) (all []Block) {
	t.Helper()
	data, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	open := false
	for i, line := range strings.Split(string(data), "\n") {
		lang, fence := strings.CutPrefix(strings.TrimSpace(line), "```")
		switch {
		case fence && !open:
			all = append(all, Block{page, lang, i + 1, ""})
		case !fence && open:
			all[len(all)-1].Text += line + "\n"
		}
		open = open != fence
	}
	if open {
		t.Errorf("%s: a block is not closed", page)
	}
	return all
}

package cli

import (
	"fmt"
	"io"
	"strings"
)

// screen is the end of a terminal: lines that stay, and below them a few that
// are drawn again and again. In a pipe there are only those that stay.
type screen struct {
	out   io.Writer
	live  bool
	width int
	drawn int // lines of the block below
}

// print writes lines that stay.
func (s *screen) print(text string) {
	s.clear()
	fmt.Fprintln(s.out, text)
}

// draw draws the block below. Each line has to fit.
func (s *screen) draw(lines []string) {
	if !s.live {
		return
	}
	var out strings.Builder
	s.up(&out)
	for _, line := range lines {
		out.WriteString(line + "\n")
	}
	s.drawn = len(lines)
	io.WriteString(s.out, out.String())
}

// clear removes the block.
func (s *screen) clear() {
	if s.drawn > 0 {
		var out strings.Builder
		s.up(&out)
		s.drawn = 0
		io.WriteString(s.out, out.String())
	}
}

// up goes to the block's beginning and empties it.
func (s *screen) up(out *strings.Builder) {
	if s.drawn > 0 {
		fmt.Fprintf(out, "\x1b[%dA\r\x1b[J", s.drawn)
	}
}

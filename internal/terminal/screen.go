package terminal

import (
	"fmt"
	"io"
	"strings"
)

// Screen is the end of a terminal: lines that stay, and below them a block that is
// drawn again and again. Without Live there are only lines that stay.
type Screen struct {
	Out   io.Writer
	Live  bool
	Drawn int // lines of the block
}

// Print writes lines that stay.
func (s *Screen) Print(text string) {
	s.Clear()
	fmt.Fprintln(s.Out, text)
}

// Draw draws the block below. Each line has to fit.
func (s *Screen) Draw(lines []string) {
	if s.Live {
		text := s.erase() + strings.Join(lines, "\n") + "\n"
		s.Drawn = len(lines)
		io.WriteString(s.Out, text)
	}
}

// Clear removes the block.
func (s *Screen) Clear() {
	if s.Drawn > 0 {
		io.WriteString(s.Out, s.erase())
		s.Drawn = 0
	}
}

// erase goes to the block's beginning and empties it.
func (s *Screen) erase() string {
	if s.Drawn == 0 {
		return ""
	}
	return fmt.Sprintf("\x1b[%dA\r\x1b[J", s.Drawn)
}

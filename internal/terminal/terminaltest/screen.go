// Package terminaltest is a terminal for tests. It imports package safe and nothing
// else of Perdure.
package terminaltest

import (
	"strconv"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/perdure/perdure/internal/safe"
)

// Screen returns the rows that a terminal shows after bytes were sent to it. It knows
// the sequences that package terminal uses, and fails the test for any other.
func Screen(t testing.TB, sent string) []string {
	t.Helper()
	rows, at := []string{""}, 0
	for sent != "" {
		if rest, ok := strings.CutPrefix(sent, "\x1b["); ok {
			end := strings.IndexFunc(rest, func(c rune) bool { return c >= '@' && c <= '~' })
			if end < 0 {
				t.Fatalf("a sequence has no end: %q", sent)
			}
			switch n, _ := strconv.Atoi(rest[:end]); rest[end] {
			case 'A':
				if at -= n; at < 0 {
					t.Fatalf("the output goes up further than there are lines")
				}
			case 'J':
				rows = append(rows[:at], "")
			case 'm':
			default:
				t.Fatalf("an unknown sequence: %q", sent[:end+3])
			}
			sent = rest[end+1:]
			continue
		}
		c, size := utf8.DecodeRuneInString(sent)
		sent = sent[size:]
		switch {
		case c == '\n':
			if at++; at == len(rows) {
				rows = append(rows, "")
			}
		case c == '\r':
		case safe.Steers(c):
			t.Fatalf("a character steers the terminal: %q", c)
		default:
			rows[at] += string(c)
		}
	}
	return rows
}

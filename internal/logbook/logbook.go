// Package logbook remembers the last lines that a runtime has logged. It imports
// nothing of Perdure.
package logbook

import (
	"context"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"
)

// most is how many lines a book has, and longest how long a value is in it.
const most, longest = 200, 1000

// Line is one line.
type Line struct {
	Time  time.Time   `json:"time"`
	Level string      `json:"level"`
	Text  string      `json:"text"`
	Attrs [][2]string `json:"attrs,omitempty"` // names and values
}

// Book is a handler of logs that remembers the last lines from level Info on, and
// passes them all on to another one.
type Book struct {
	next  slog.Handler
	group string // of attributes, with a dot at its end
	attrs [][2]string
	lines *lines
}

type lines struct {
	mu  sync.Mutex
	all []Line
}

// New returns an empty book that passes lines on to next.
func New(next slog.Handler) *Book { return &Book{next: next, lines: &lines{}} }

// Lines returns the lines that it remembers, oldest first.
func (b *Book) Lines() []Line {
	b.lines.mu.Lock()
	defer b.lines.mu.Unlock()
	return slices.Clone(b.lines.all)
}

// Enabled implements slog.Handler.
func (b *Book) Enabled(ctx context.Context, level slog.Level) bool {
	return level >= slog.LevelInfo || b.next.Enabled(ctx, level)
}

// Handle implements slog.Handler.
func (b *Book) Handle(ctx context.Context, r slog.Record) error {
	if r.Level >= slog.LevelInfo {
		line := Line{Time: r.Time.UTC(), Level: r.Level.String(), Text: r.Message, Attrs: slices.Clone(b.attrs)}
		r.Attrs(func(a slog.Attr) bool {
			line.Attrs = append(line.Attrs, b.attr(a))
			return true
		})
		b.lines.mu.Lock()
		if len(b.lines.all) == most {
			b.lines.all = slices.Delete(b.lines.all, 0, 1)
		}
		b.lines.all = append(b.lines.all, line)
		b.lines.mu.Unlock()
	}
	if !b.next.Enabled(ctx, r.Level) {
		return nil
	}
	return b.next.Handle(ctx, r)
}

func (b *Book) attr(a slog.Attr) [2]string {
	value := a.Value.Resolve().String()
	if len(value) > longest {
		value = strings.ToValidUTF8(value[:longest], "") + " …"
	}
	return [2]string{b.group + a.Key, value}
}

// WithAttrs implements slog.Handler.
func (b *Book) WithAttrs(attrs []slog.Attr) slog.Handler {
	c := *b
	c.next, c.attrs = b.next.WithAttrs(attrs), slices.Clone(b.attrs)
	for _, a := range attrs {
		c.attrs = append(c.attrs, b.attr(a))
	}
	return &c
}

// WithGroup implements slog.Handler.
func (b *Book) WithGroup(name string) slog.Handler {
	c := *b
	c.next, c.group = b.next.WithGroup(name), b.group+name+"."
	return &c
}

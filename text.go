package perdure

import (
	"context"
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
	"unicode/utf8"

	"github.com/perdure/perdure/internal/journal"
)

// Text is a key of the state that holds a text, such as a file. Of a change
// only what is new is written. Of several branches that write it the last one
// in the order of the journal wins, as with [State].
type Text struct{ key string }

// NewText returns the text of a key.
func NewText(key string) Text { return Text{key} }

// Get returns the text, "" if there is none.
func (t Text) Get(ctx context.Context) (string, error) { return State[string](t).Get(ctx) }

// Lookup returns the text and whether there is one.
func (t Text) Lookup(ctx context.Context) (string, bool, error) {
	return State[string](t).Lookup(ctx)
}

// Delete removes the text.
func (t Text) Delete(ctx context.Context) error { return State[string](t).Delete(ctx) }

// Set writes the text. What it shares with the one before at the beginning and
// at the end is not written again.
func (t Text) Set(ctx context.Context, text string) error {
	old, there, err := t.Lookup(ctx)
	if err != nil {
		return err
	}
	if !there || old == "" {
		return State[string](t).Set(ctx, text)
	}
	if old == text {
		return nil
	}
	head := 0
	for head < min(len(old), len(text)) && old[head] == text[head] {
		head++
	}
	for head > 0 && !(runeStart(old, head) && runeStart(text, head)) {
		head--
	}
	tail := 0
	for tail < min(len(old), len(text))-head && old[len(old)-1-tail] == text[len(text)-1-tail] {
		tail++
	}
	for tail > 0 && !(runeStart(old, len(old)-tail) && runeStart(text, len(text)-tail)) {
		tail--
	}
	return t.edit(ctx, text, journal.Edit{At: head, Del: len(old) - tail - head, Ins: text[head : len(text)-tail]})
}

func runeStart(s string, i int) bool { return i == len(s) || utf8.RuneStart(s[i]) }

// Replace replaces every old by new and returns how many there were. Only the
// replacements are written.
func (t Text) Replace(ctx context.Context, old, new string) (int, error) {
	text, err := t.Get(ctx)
	if err != nil || old == "" || old == new {
		return 0, err
	}
	var edits []journal.Edit
	for at, rest, shift := 0, text, 0; ; {
		i := strings.Index(rest, old)
		if i < 0 {
			break
		}
		edits = append(edits, journal.Edit{At: at + i + shift, Del: len(old), Ins: new})
		shift += len(new) - len(old)
		at, rest = at+i+len(old), rest[i+len(old):]
	}
	if len(edits) == 0 {
		return 0, nil
	}
	return len(edits), t.edit(ctx, strings.ReplaceAll(text, old, new), edits...)
}

// maxEdits is how many edits stand behind a text before it is written anew, so
// that reading it stays cheap.
const maxEdits = 200

// edit writes edits that make the text what is given, or that whole if it is
// cheaper.
func (t Text) edit(ctx context.Context, whole string, edits ...journal.Edit) error {
	raw, err := encode(whole, reflect.TypeFor[string]())
	if err != nil {
		return fmt.Errorf("state %q: %w", t.key, err)
	}
	cost := 0
	for _, e := range edits {
		if !utf8.ValidString(e.Ins) {
			return fmt.Errorf("state %q: %w: the edit is not UTF-8", t.key, ErrNotJSON)
		}
		cost += len(e.Ins) + 24
	}
	return change(ctx, fmt.Sprintf("state %q", t.key), func(f *frame) error {
		base, there := f.view.get(t.key)
		c := journal.Change{Key: t.key, Edit: edits}
		if !there || cost >= len(raw) || cost > maxEditBytes || len(base.Values()) >= maxEdits || len(edits) > 1000 {
			c = journal.Change{Key: t.key, Set: &journal.Value{JSON: raw}}
		} else {
			f.pending.edits = append(f.pending.edits, edited{len(f.pending.changes), base, raw})
		}
		f.pending.changes = append(f.pending.changes, c)
		f.view.apply([]journal.Change{c})
		return nil
	})
}

// maxEditBytes is how much one change of a text may insert before it is
// written whole, in which form it may become a blob.
const maxEditBytes = 32 << 10

// edited is a change by edits: where it stands among the changes, and what it
// begins and ends with.
type edited struct {
	at    int
	base  journal.Item
	whole json.RawMessage
}

// rebase makes the first edit of each text that another branch or run has
// changed meanwhile a change of the whole text. It is called by who commits
// next.
func (p *pass) rebase(l *leaf) {
	p.mu.Lock()
	defer p.mu.Unlock()
	seen := map[string]bool{}
	for _, e := range l.edits {
		c := &l.changes[e.at]
		if !seen[c.Key] && !p.thread.State[c.Key].Same(e.base) && !l.writesBefore(e.at, c.Key) {
			*c = journal.Change{Key: c.Key, Set: &journal.Value{JSON: e.whole}}
		}
		seen[c.Key] = true
	}
	l.edits = nil
}

// writesBefore reports whether the leaf itself wrote a key whole before a
// change.
func (l *leaf) writesBefore(at int, key string) bool {
	for _, c := range l.changes[:at] {
		if c.Key == key {
			return true
		}
	}
	return false
}

// edit returns the text of an item: its base with the edits behind it.
func edit(base json.RawMessage, edits []journal.Value) (json.RawMessage, error) {
	var text string
	if err := json.Unmarshal(base, &text); err != nil {
		return nil, fmt.Errorf("%w: edits of what is no text", ErrCorrupt)
	}
	b := []byte(text)
	for _, v := range edits {
		var list []journal.Edit
		if err := json.Unmarshal(v.JSON, &list); err != nil {
			return nil, fmt.Errorf("%w: an edit of a text: %w", ErrCorrupt, err)
		}
		for _, e := range list {
			if e.At < 0 || e.Del < 0 || e.At > len(b) || e.Del > len(b)-e.At {
				return nil, fmt.Errorf("%w: an edit of a text at %d, which has %d bytes", ErrCorrupt, e.At, len(b))
			}
			rest := b[e.At+e.Del:]
			next := make([]byte, 0, e.At+len(e.Ins)+len(rest))
			b = append(append(append(next, b[:e.At]...), e.Ins...), rest...)
		}
	}
	return encode(string(b), reflect.TypeFor[string]())
}

package engine

import (
	"context"
	"encoding/json"
	"fmt"
	"math"
	"reflect"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/perdure/perdure/internal/exact"
	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/journal"
)

// SetText writes a text under a key of the state, recording only what changed.
func SetText(ctx context.Context, key, text string) error {
	old, base, there, err := readText(ctx, key)
	if err != nil {
		return err
	}
	if !there || old == "" {
		raw, err := exact.Encode(text, reflect.TypeFor[string]())
		if err != nil {
			return fmt.Errorf("state %q: %w", key, err)
		}
		return WriteState(ctx, journal.Change{Key: key, Set: &journal.Value{JSON: raw}})
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
	return editText(ctx, key, base, text, journal.Edit{At: head, Del: len(old) - tail - head, Ins: text[head : len(text)-tail]})
}

// readText returns the text under a key, and the item that it was read from.
func readText(ctx context.Context, key string) (text string, base journal.Item, there bool, err error) {
	raw, base, there, err := readItem(ctx, key)
	if err == nil && there {
		text, err = RecordedAs[string](ctx, "state", key, raw)
	}
	return text, base, there, err
}

func runeStart(s string, i int) bool { return i == len(s) || utf8.RuneStart(s[i]) }

// ReplaceText replaces every old with new in the text under a key, and returns
// how many it replaced.
func ReplaceText(ctx context.Context, key, old, new string) (int, error) {
	text, base, _, err := readText(ctx, key)
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
	return len(edits), editText(ctx, key, base, strings.ReplaceAll(text, old, new), edits...)
}

// maxEdits is how many edits may follow a text before it is written whole
// again, so that reading it stays cheap. The edits must also have fewer bytes
// than the text.
const maxEdits = 200

// editText writes the edits that turn base into whole, or whole itself if that
// is cheaper or if another goroutine of the leaf has changed the base.
func editText(ctx context.Context, key string, base journal.Item, whole string, edits ...journal.Edit) error {
	raw, err := exact.Encode(whole, reflect.TypeFor[string]())
	if err != nil {
		return fmt.Errorf("state %q: %w", key, err)
	}
	size := 0
	for _, e := range edits {
		if !utf8.ValidString(e.Ins) {
			return fmt.Errorf("state %q: %w: the edit is not UTF-8", key, fault.ErrNotJSON)
		}
		size += quoted(e.Ins) + 24
	}
	return change(ctx, fmt.Sprintf("state %q", key), func(f *frame) error {
		now, there := f.view.get(key)
		c := journal.Change{Key: key, Edit: edits}
		if !there || !now.Same(base) || size > maxEditBytes || len(edits) > 1000 || behind(base)+size > len(raw) {
			c = journal.Change{Key: key, Set: &journal.Value{JSON: raw}}
		} else {
			f.pending.edits = append(f.pending.edits, edited{len(f.pending.changes), base, raw, size})
		}
		f.pending.changes = append(f.pending.changes, c)
		f.view.apply([]journal.Change{c})
		return nil
	})
}

// behind returns how many bytes of edits follow a text, or a huge number if
// there are so many edits that the text must be written whole again.
func behind(base journal.Item) (size int) {
	all := base.Values()
	if len(all) >= maxEdits {
		return math.MaxInt32
	}
	for _, v := range all {
		size += len(v.JSON)
	}
	return size
}

// quoted returns an upper bound for the bytes of a text in JSON.
func quoted(s string) int {
	n := len(s) + 2
	for i := range len(s) {
		switch c := s[i]; {
		case c == '"' || c == '\\' || c == '\n' || c == '\t' || c == '\r':
			n++
		case c < ' ':
			n += 5
		case c == 0xe2: // it begins U+2028 and U+2029, which are escaped
			n += 3
		}
	}
	return n
}

// maxEditBytes is how much one change of a text may insert, and maxLeafEdits
// how much all changes of a leaf together, before texts are written whole: in
// that form they may become blobs.
const maxEditBytes, maxLeafEdits = 32 << 10, 64 << 10

// edited is a change made of edits: its index among the changes, the text
// before and after it, and its size in bytes.
type edited struct {
	at    int
	base  journal.Item
	whole json.RawMessage
	size  int
}

// rebase turns edits into changes of the whole text: the first edit of each
// text that another branch or run has changed in the meantime, and edits that
// do not fit into the entry. The caller is about to commit.
func (p *Pass) rebase(l *leaf) {
	p.mu.Lock()
	defer p.mu.Unlock()
	seen, size := map[string]bool{}, 0
	for _, e := range l.edits {
		c := &l.changes[e.at]
		written := slices.ContainsFunc(l.changes[:e.at], func(before journal.Change) bool { return before.Key == c.Key })
		stale := !seen[c.Key] && !p.thread.State[c.Key].Same(e.base) && !written
		seen[c.Key] = true
		if stale || size+e.size > maxLeafEdits {
			*c = journal.Change{Key: c.Key, Set: &journal.Value{JSON: e.whole}}
		} else {
			size += e.size
		}
	}
	l.edits = nil
}

package journal

import (
	"bytes"
	"encoding/json"
	"math"
	"strconv"
	"sync/atomic"
)

// Item is the value of one key of the state: a base, and the values appended to it
// or the edits of a text. Items are immutable, so views of the state may share them.
type Item struct {
	Base Value
	Tail *Link
	Text bool // each link of the tail is a list of Edit
}

// Link is one appended value. The tail of an Item is a list of them, newest first.
type Link struct {
	Value Value
	Prev  *Link

	read atomic.Pointer[Read] // see Keep
	held *atomic.Int64        // bytes that the links of the thread keep, nil if it is in no thread
}

// Read is what a reader has made of a link's value.
type Read struct {
	JSON  json.RawMessage // if it had to be read from the journal
	Value any             // decoded
}

// Keep keeps r for later readers of the value, which share it.
func (l *Link) Keep(r Read) {
	size := r.weight(l)
	if old := l.read.Swap(&r); old != nil {
		size -= old.weight(l)
	}
	if l.held != nil {
		l.held.Add(size)
	}
}

// Kept returns what the last call of Keep has kept.
func (l *Link) Kept() (r Read) {
	if kept := l.read.Load(); kept != nil {
		return *kept
	}
	return r
}

// weight returns the approximate number of bytes that r takes in memory.
func (r *Read) weight(l *Link) int64 {
	w := len(r.JSON)
	if r.Value != nil {
		w += 256 + 2*max(len(r.JSON), len(l.Value.JSON))
	}
	return int64(w)
}

// Values returns the appended values, oldest first.
func (i Item) Values() []Value {
	n := 0
	for l := i.Tail; l != nil; l = l.Prev {
		n++
	}
	all := make([]Value, n)
	for l := i.Tail; l != nil; l = l.Prev {
		n--
		all[n] = l.Value
	}
	return all
}

// Number returns the integer that an item holds, 0 if it holds none.
func (i Item) Number() int64 {
	n, err := strconv.ParseInt(string(i.Base.JSON), 10, 64)
	if err != nil || i.Tail != nil {
		return 0
	}
	return n
}

// Sum adds and saturates instead of overflowing.
func Sum(a, b int64) int64 {
	switch c := a + b; {
	case a > 0 && b > 0 && c < 0:
		return math.MaxInt64
	case a < 0 && b < 0 && c >= 0:
		return math.MinInt64
	default:
		return c
	}
}

// Next returns what the change makes of an item, and whether the item exists
// afterwards.
func (c Change) Next(old Item) (Item, bool) { return c.next(old, 0) }

// next is Next for a change whose first value is at the given place, 0 if that is
// not known.
func (c Change) next(old Item, at Place) (Item, bool) {
	switch {
	case c.Item != nil:
		return *c.Item, true
	case c.Delete:
		return Item{}, false
	case c.Set != nil:
		return Item{Base: c.Set.placed(at)}, true
	case c.Add != nil:
		return Item{Base: Value{JSON: json.RawMessage(strconv.FormatInt(Sum(old.Number(), *c.Add), 10))}}, true
	}
	if len(c.Edit) > 0 {
		raw, _ := json.Marshal(c.Edit) // numbers and text always encode
		old.Text, old.Tail = true, &Link{Value: Value{JSON: raw}, Prev: old.Tail}
		return old, true
	}
	if old.Text && len(c.Append) > 0 {
		old = Item{} // a text is not a list: start a new one
	}
	for i, v := range c.Append {
		old.Tail = &Link{Value: v.placed(at.plus(i)), Prev: old.Tail}
	}
	return old, true
}

// Texts returns the texts that e, the entry applied last, has edited; nil if it has
// no edits.
func (t *Thread) Texts(e Entry) map[string]Item {
	if e.Kind != Step || e.value != nil {
		return nil
	}
	b, err := e.Read()
	if err != nil {
		return nil // Apply has reported the error
	}
	var texts map[string]Item
	for _, c := range b.State {
		if item, there := t.State[c.Key]; there && len(c.Edit) > 0 {
			if texts == nil {
				texts = map[string]Item{}
			}
			texts[c.Key] = item
		}
	}
	return texts
}

// Same reports whether two items have equal bytes or blobs.
func (i Item) Same(j Item) bool {
	if i.Text != j.Text || !sameValue(i.Base, j.Base) {
		return false
	}
	a, b := i.Tail, j.Tail
	for ; a != b; a, b = a.Prev, b.Prev {
		if a == nil || b == nil || !sameValue(a.Value, b.Value) {
			return false
		}
	}
	return true
}

func sameValue(a, b Value) bool {
	if a.Elsewhere() || b.Elsewhere() {
		return a.At == b.At
	}
	if a.Blob != nil && b.Blob != nil {
		return *a.Blob == *b.Blob
	}
	return a.Blob == nil && b.Blob == nil && bytes.Equal(a.JSON, b.JSON)
}

// Apply applies the change to a state.
func (c Change) Apply(state map[string]Item) {
	if item, there := c.Next(state[c.Key]); there {
		state[c.Key] = item
	} else {
		delete(state, c.Key)
	}
}

// change applies the changes of an entry to the state.
func (t *Thread) change(e Entry, b *Body) {
	if len(b.State) > 0 {
		t.ownState()
	}
	nth := 1 // index in the body's values
	for i, c := range b.Changes() {
		at := placeOf(e.Seq, nth)
		if c.Result && !b.Value.IsZero() {
			at = placeOf(e.Seq, 0)
		}
		nth += b.State[i].values()
		old := t.State[c.Key]
		item, there := c.next(old, at)
		t.weight += item.weight(old)
		for l := item.Tail; l != nil && l != old.Tail; l = l.Prev {
			l.held = t.held
		}
		if there {
			t.State[c.Key] = item
		} else {
			delete(t.State, c.Key)
		}
	}
}

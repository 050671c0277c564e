package journal

import (
	"bytes"
	"encoding/json"
	"maps"
	"slices"
	"strconv"
	"unicode/utf8"
)

// Most bodies of a long run have few fields: those of a step that changes the state,
// spends, or has a digest of its input. They are written and read here without
// reflection, with the same result as encoding/json, which handles all others.

// appendShort appends the bytes of a body. It reports false if the body has fields
// or texts that only encoding/json writes. Values must be compact JSON.
func (b *Body) appendShort(raw []byte) ([]byte, bool) {
	if b.others() || b.Value.Blob != nil || b.Value.JSON != nil && len(b.Value.JSON) == 0 {
		return raw, false
	}
	w := shortWriter{raw: append(raw, '{'), empty: true}
	w.text(`"verb":`, b.Verb)
	w.text(`"in":`, b.Input)
	if len(b.State) > 0 {
		w.field(`"state":[`)
		for i := range b.State {
			if i > 0 {
				w.raw = append(w.raw, ',')
			}
			w.change(&b.State[i])
		}
		w.close(']')
	}
	if len(b.Spend) > 0 {
		w.field(`"spend":{`)
		w.empty = true
		var room [8]string
		units := slices.AppendSeq(room[:0], maps.Keys(b.Spend))
		slices.Sort(units)
		for _, unit := range units {
			w.field("")
			w.quote(unit)
			w.raw = strconv.AppendInt(append(w.raw, ':'), b.Spend[unit], 10)
		}
		w.close('}')
	}
	if b.Ref != 0 {
		w.field(`"ref":`)
		w.raw = strconv.AppendUint(w.raw, b.Ref, 10)
	}
	if b.Took != 0 {
		w.field(`"us":`)
		w.raw = strconv.AppendInt(w.raw, b.Took, 10)
	}
	if b.Value.JSON != nil {
		w.field(`"res":`)
		w.value(&b.Value)
	}
	w.close('}')
	return w.raw, !w.failed
}

// size returns the approximate number of bytes of a body.
func (b *Body) size() int {
	n := plainSize + len(b.Input) + len(b.Value.JSON) + 32*len(b.Spend)
	for i := range b.State {
		c := &b.State[i]
		n += 40 + len(c.Key)
		if c.Set != nil {
			n += len(c.Set.JSON)
		}
		for j := range c.Append {
			n += 3 + len(c.Append[j].JSON)
		}
	}
	return n
}

// others reports whether a body has fields that a short one does not have.
func (b *Body) others() bool {
	return b.Thread != "" || b.Tenant != "" || b.User != "" || b.Title != nil || b.Meta != nil ||
		b.From != nil || b.At != 0 || b.Void || b.Keep != nil || b.Child != "" ||
		b.ID != "" || b.Flow != "" || b.Policy != "" || b.Key != "" || b.Budget != nil || b.Trace != "" ||
		b.Worker != "" || b.Version != "" || b.By != "" || b.Reason != "" ||
		b.Attempt != 0 || b.Most != 0 || b.Due != 0 || b.Timer || b.Cleaning ||
		b.Fail != nil || b.Deps != nil || b.NotDone || b.Allows != nil ||
		b.Ask != nil || b.Answer != nil || b.Of != "" || b.Name != "" || b.Plan != nil ||
		b.Status != "" || b.Unknown != nil || b.Diff != "" || b.Blobs != nil
}

type shortWriter struct {
	raw    []byte
	empty  bool // no field is written yet
	failed bool // encoding/json has to write the body
}

// field begins a field.
func (w *shortWriter) field(name string) {
	if !w.empty {
		w.raw = append(w.raw, ',')
	}
	w.empty = false
	w.raw = append(w.raw, name...)
}

func (w *shortWriter) close(bracket byte) { w.raw, w.empty = append(w.raw, bracket), false }

func (w *shortWriter) text(name, s string) {
	if s != "" {
		w.field(name)
		w.quote(s)
	}
}

func (w *shortWriter) quote(s string) {
	for i := range len(s) {
		if c := s[i]; c < ' ' || c > '~' || c == '"' || c == '\\' {
			w.failed = true
		}
	}
	w.raw = append(append(append(w.raw, '"'), s...), '"')
}

func (w *shortWriter) value(v *Value) {
	w.failed = w.failed || v.Blob != nil || len(v.JSON) == 0
	w.raw = append(append(append(w.raw, '['), v.JSON...), ']')
}

func (w *shortWriter) change(c *Change) {
	w.raw = append(w.raw, `{"k":`...)
	w.quote(c.Key)
	if c.Set != nil {
		w.raw = append(w.raw, `,"set":`...)
		w.value(c.Set)
	}
	if c.Delete {
		w.raw = append(w.raw, `,"del":true`...)
	}
	if c.Add != nil {
		w.raw = strconv.AppendInt(append(w.raw, `,"add":`...), *c.Add, 10)
	}
	for i := range c.Append {
		if i == 0 {
			w.raw = append(w.raw, `,"app":[`...)
		} else {
			w.raw = append(w.raw, ',')
		}
		w.value(&c.Append[i])
	}
	if len(c.Append) > 0 {
		w.raw = append(w.raw, ']')
	}
	if c.Result {
		w.raw = append(w.raw, `,"res":true`...)
	}
	w.failed = w.failed || len(c.Edit) > 0
	w.raw = append(w.raw, '}')
}

// readShort returns the body that appendShort writes as raw, nil if it would not
// write raw. It assumes that raw is JSON. The body's value shares memory with raw.
// The values of the state do not, since they may outlive it.
func readShort(raw json.RawMessage) *Body {
	r := shortReader{raw: raw}
	b := new(Body)
	r.expect("{")
	first := true
	has := func(name string) bool {
		if !first && !r.next(",") {
			return false
		}
		if !r.next(name) {
			if !first {
				r.at-- // the comma
			}
			return false
		}
		first = false
		return true
	}
	if has(`"verb":`) {
		b.Verb = r.text()
	}
	if has(`"in":`) {
		b.Input = r.text()
	}
	if has(`"state":[`) {
		for more := true; more && !r.failed; more = r.next(",") {
			b.State = append(b.State, r.change())
		}
		r.expect("]")
	}
	if has(`"spend":{`) {
		b.Spend = map[string]int64{}
		for more := true; more && !r.failed; more = r.next(",") {
			unit := r.text()
			r.expect(":")
			b.Spend[unit] = r.number()
		}
		r.expect("}")
	}
	if has(`"ref":`) {
		n := r.number()
		r.failed = r.failed || n < 0
		b.Ref = uint64(n)
	}
	if has(`"us":`) {
		b.Took = r.number()
	}
	if has(`"res":`) {
		b.Value = r.value()
	}
	r.expect("}")
	if r.failed || r.at != len(raw) {
		return nil
	}
	return b
}

// shortReader reads what is expected, and fails at anything else.
type shortReader struct {
	raw    []byte
	at     int
	failed bool
}

// next skips text, if that comes next, and reports whether it did.
func (r *shortReader) next(text string) bool {
	if r.failed || len(r.raw)-r.at < len(text) || string(r.raw[r.at:r.at+len(text)]) != text {
		return false
	}
	r.at += len(text)
	return true
}

func (r *shortReader) expect(text string) { r.failed = r.failed || !r.next(text) }

// until returns the bytes up to end and skips them.
func (r *shortReader) until(end int) []byte {
	if r.failed = r.failed || end <= r.at; r.failed {
		return nil
	}
	from := r.at
	r.at = end
	return r.raw[from:end:end]
}

func (r *shortReader) text() string {
	if r.failed = r.failed || r.at >= len(r.raw) || r.raw[r.at] != '"'; r.failed {
		return ""
	}
	b := r.until(unquote(r.raw, r.at) + 1)
	if r.failed = r.failed || bytes.IndexByte(b, '\\') >= 0 || !utf8.Valid(b); r.failed {
		return ""
	}
	return string(b[1 : len(b)-1])
}

func (r *shortReader) number() (n int64) {
	negative := r.next("-")
	digits := 0
	for ; r.at < len(r.raw) && r.raw[r.at] >= '0' && r.raw[r.at] <= '9'; r.at++ {
		n = 10*n + int64(r.raw[r.at]-'0')
		digits++
	}
	r.failed = r.failed || digits == 0 || digits > 18
	if negative {
		return -n
	}
	return n
}

func (r *shortReader) value() (v Value) {
	if r.failed = r.failed || r.at >= len(r.raw) || r.raw[r.at] != '['; r.failed {
		return v
	}
	if b := r.until(span(r.raw, r.at)); b != nil {
		if inner := bytes.TrimSpace(b[1 : len(b)-1]); len(inner) > 0 {
			v.JSON = inner
		}
	}
	return v
}

func (v Value) clone() Value { return Value{JSON: bytes.Clone(v.JSON), Blob: v.Blob} }

func (r *shortReader) change() (c Change) {
	r.expect(`{"k":`)
	c.Key = r.text()
	if r.next(`,"set":`) {
		v := r.value().clone()
		c.Set = &v
	}
	c.Delete = r.next(`,"del":true`)
	if r.next(`,"add":`) {
		n := r.number()
		c.Add = &n
	}
	if r.next(`,"app":[`) {
		for more := true; more && !r.failed; more = r.next(",") {
			c.Append = append(c.Append, r.value().clone())
		}
		r.expect("]")
	}
	c.Result = r.next(`,"res":true`)
	r.expect("}")
	return c
}

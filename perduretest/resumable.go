package perduretest

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"reflect"
	"sync"
	"testing"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/strict"
)

// CheckResumable checks that a dep keeps the rules of [perdure.Resumable].
// Populated returns a new dep that its own methods have filled with state, and
// empty returns a new dep as its factory creates it. Each failure says which rule
// is broken and why the rule exists.
//
//  1. JSON: Dump returns one JSON object of at most [perdure.MaxDump] bytes that
//     means the same after decoding and encoding it, and a dep that loads it dumps
//     the same.
//  2. Cold start: a dep that was never loaded works, and Load accepts {} and
//     unknown keys.
//  3. Pure dump: Dump changes nothing, returns the same bytes again, and can be
//     called concurrently; run the test with -race. If the dep is
//     [perdure.Versioned], its number changes when its state does, and only then.
func CheckResumable(t testing.TB, populated, empty func() perdure.Resumable) {
	t.Helper()
	c := resumableCheck{t: t, ctx: t.Context()}
	full := populated()
	first, ok := c.dump("a populated dep", full)
	if !ok || !c.json(first) {
		return
	}
	c.coldStart(empty, first)
	c.restore(empty, first)
	c.pure(full, first)
	c.version(full, empty())
}

type resumableCheck struct {
	t   testing.TB
	ctx context.Context
}

const (
	ruleJSON = "rule 1, JSON: the dump is kept as JSON and read by another process"
	ruleCold = "rule 2, cold start: the first run has no saved state, and older and newer code leave keys out or bring others"
	rulePure = "rule 3, pure dump: Dump is called often and at any time, so it only reads"
)

func (c *resumableCheck) fail(rule, format string, args ...any) {
	c.t.Helper()
	c.t.Errorf("%s.\n\t%s", rule, fmt.Sprintf(format, args...))
}

// call makes a panic of a dep an error.
func call(f func() error) (err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("panic: %v", r)
		}
	}()
	return f()
}

func dumpOf(ctx context.Context, r perdure.Resumable) (raw json.RawMessage, err error) {
	err = call(func() error {
		raw, err = r.Dump(ctx)
		return err
	})
	return raw, err
}

func (c *resumableCheck) dump(what string, r perdure.Resumable) (json.RawMessage, bool) {
	c.t.Helper()
	raw, err := dumpOf(c.ctx, r)
	if err != nil {
		c.fail(ruleJSON, "Dump of %s fails: %v", what, err)
		return nil, false
	}
	return raw, true
}

// load loads a copy that it overwrites afterwards, since the runtime may reuse the
// bytes.
func (c *resumableCheck) load(r perdure.Resumable, state json.RawMessage) error {
	own := bytes.Clone(state)
	err := call(func() error { return r.Load(c.ctx, own) })
	for i := range own {
		own[i] = 'x'
	}
	return err
}

// json reports whether the dump can be used to check the rest.
func (c *resumableCheck) json(raw json.RawMessage) bool {
	c.t.Helper()
	switch {
	case len(raw) > perdure.MaxDump:
		c.fail(ruleJSON, "The dump has %d bytes, the limit is %d; beyond it the last good one stays. Keep what is large elsewhere, and its name in the dump.", len(raw), perdure.MaxDump)
		return false
	case !json.Valid(raw):
		c.fail(ruleJSON, "The dump is not JSON: %.200q", raw)
		return false
	case strict.Text(raw) != nil:
		c.fail(ruleJSON, "The dump is not valid Unicode, so its strings change when they are read: %v: %.200q", strict.Text(raw), raw)
		return false
	case bytes.TrimSpace(raw)[0] != '{':
		c.fail(ruleJSON, "The dump is not a JSON object, but Load has to accept {} as well: %.200s", raw)
		return false
	}
	if key := duplicate(json.NewDecoder(bytes.NewReader(raw))); key != "" {
		c.fail(ruleJSON, "The dump has the key %q twice in one object, but only one of them is read: %.200s", key, raw)
		return false
	}
	return true
}

// duplicate returns a key that occurs twice in an object of the next value, or "".
func duplicate(dec *json.Decoder) string {
	begin, _ := dec.Token()
	if begin != json.Delim('{') && begin != json.Delim('[') {
		return ""
	}
	seen := map[json.Token]bool{}
	for dec.More() {
		if begin == json.Delim('{') {
			key, _ := dec.Token()
			if seen[key] {
				return key.(string)
			}
			seen[key] = true
		}
		if key := duplicate(dec); key != "" {
			return key
		}
	}
	_, _ = dec.Token() // the end
	return ""
}

// decoded returns a JSON value with its numbers as written.
func decoded(raw json.RawMessage) (v any, err error) {
	dec := json.NewDecoder(bytes.NewReader(raw))
	dec.UseNumber()
	if err = dec.Decode(&v); err == nil {
		if _, more := dec.Token(); !errors.Is(more, io.EOF) {
			err = errors.New("something follows the value")
		}
	}
	return v, err
}

func sameJSON(a, b json.RawMessage) bool {
	x, errX := decoded(a)
	y, errY := decoded(b)
	return errX == nil && errY == nil && reflect.DeepEqual(x, y)
}

func (c *resumableCheck) coldStart(empty func() perdure.Resumable, first json.RawMessage) {
	c.t.Helper()
	if blank, err := dumpOf(c.ctx, empty()); err != nil {
		c.fail(ruleCold, "A dep that was never loaded cannot be dumped: %v", err)
	} else if sameJSON(blank, first) {
		c.fail(ruleCold, "The populated dep dumps the same as an empty one: it is not populated, or its state is not in its dump: %.200s", first)
	}
	for _, state := range []string{`{}`, `{"unknown_key":"ignored","another":[1,{"deep":null}]}`} {
		r := empty()
		if err := c.load(r, json.RawMessage(state)); err != nil {
			c.fail(ruleCold, "Load(%s) fails: %v", state, err)
		} else if _, err := dumpOf(c.ctx, r); err != nil {
			c.fail(ruleCold, "After Load(%s) Dump fails: %v", state, err)
		}
	}
	// A newer version added a key to a real dump.
	if trimmed := bytes.TrimSpace(first); len(trimmed) > 2 && trimmed[0] == '{' {
		newer := append([]byte(`{"unknown_key":"ignored",`), trimmed[1:]...)
		r := empty()
		if err := c.load(r, newer); err != nil {
			c.fail(ruleCold, "Load of a real dump with an additional key fails: %v", err)
		}
	}
}

func (c *resumableCheck) restore(empty func() perdure.Resumable, first json.RawMessage) {
	c.t.Helper()
	r := empty()
	if err := c.load(r, first); err != nil {
		c.fail(ruleJSON, "Load does not accept what Dump returned: %v\n\t%.200s", err, first)
		return
	}
	if raw, ok := c.dump("a restored dep", r); ok && !sameJSON(raw, first) {
		c.fail(ruleJSON, "A dep that has loaded a dump dumps something different:\n\tit loaded %.500s\n\tit dumps  %.500s", first, raw)
	}
	// Other stores and tools may write the same JSON in another form.
	v, err := decoded(first)
	if err != nil {
		return
	}
	form, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		return
	}
	r = empty()
	if err := c.load(r, form); err != nil {
		c.fail(ruleJSON, "Load does not accept the dump after it was decoded and encoded again: %v", err)
	} else if raw, ok := c.dump("a restored dep", r); ok && !sameJSON(raw, first) {
		c.fail(ruleJSON, "A dump that was decoded and encoded again restores something different:\n\t%.500s\n\t%.500s", first, raw)
	}
}

func (c *resumableCheck) pure(full perdure.Resumable, first json.RawMessage) {
	c.t.Helper()
	kept := bytes.Clone(first)
	var before uint64
	versioned, isVersioned := full.(perdure.Versioned)
	if isVersioned {
		before = versioned.StateVersion()
	}
	again, ok := c.dump("a dep that was dumped before", full)
	if !ok {
		return
	}
	switch {
	case !sameJSON(again, kept):
		c.fail(rulePure, "The second Dump differs from the first:\n\t%.500s\n\t%.500s", kept, again)
		return
	case !bytes.Equal(again, kept):
		c.fail(rulePure, "The second Dump has the same meaning but different bytes, so unchanged state is written again each time; sort its keys:\n\t%.500s\n\t%.500s", kept, again)
		return
	case !bytes.Equal(first, kept):
		c.fail(rulePure, "The second Dump changed the bytes of the first: Dump returns a buffer that it reuses, so a change cannot be detected.")
		return
	}
	const at = 8
	dumps := make([]json.RawMessage, at)
	errs := make([]error, at)
	var all sync.WaitGroup
	for i := range at {
		all.Go(func() {
			for range 4 {
				if isVersioned {
					_ = versioned.StateVersion()
				}
				dumps[i], errs[i] = dumpOf(c.ctx, full)
			}
		})
	}
	all.Wait()
	for i := range at {
		if errs[i] != nil || !bytes.Equal(dumps[i], kept) {
			c.fail(rulePure, "A Dump that runs concurrently with others differs: %v\n\t%.500s\n\t%.500s", errs[i], kept, dumps[i])
			return
		}
	}
	if isVersioned && versioned.StateVersion() != before {
		c.fail(rulePure, "StateVersion changed from %d to %d although only Dump was called; it should change only when the state does.", before, versioned.StateVersion())
	}
}

func (c *resumableCheck) version(full, blank perdure.Resumable) {
	c.t.Helper()
	a, okA := full.(perdure.Versioned)
	b, okB := blank.(perdure.Versioned)
	if okA && okB && a.StateVersion() == b.StateVersion() {
		c.fail(rulePure, "StateVersion is %d for both an empty dep and a populated one: while it stays the same, Dump is not called, so changes are never saved. Populate the dep with its own methods.", a.StateVersion())
	}
}

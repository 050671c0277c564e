package perduretest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/perdure/perdure"
)

// recorder is a testing.TB that keeps what is reported.
type recorder struct {
	testing.TB
	ctx  context.Context
	said []string
}

func (r *recorder) Helper()                  {}
func (r *recorder) Context() context.Context { return r.ctx }
func (r *recorder) Errorf(format string, args ...any) {
	r.said = append(r.said, fmt.Sprintf(format, args...))
}

func TestCheckResumableAcceptsAGoodDep(t *testing.T) {
	CheckResumable(t,
		func() perdure.Resumable {
			l := new(progressLog)
			l.record("search")
			l.record("read")
			return l
		},
		func() perdure.Resumable { return new(progressLog) })
	CheckResumable(t,
		func() perdure.Resumable { v := &versioned{}; v.add("a"); return v },
		func() perdure.Resumable { return &versioned{} })
}

// versioned counts its changes.
type versioned struct {
	progressLog
	n atomic.Uint64
}

func (v *versioned) add(s string)         { v.record(s); v.n.Add(1) }
func (v *versioned) StateVersion() uint64 { return v.n.Load() }

// fake is a dep made of functions over a number.
type fake struct {
	mu   sync.Mutex
	n    int
	dump func(f *fake) (json.RawMessage, error)
	load func(f *fake, state json.RawMessage) error
}

func (f *fake) Dump(context.Context) (json.RawMessage, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.dump != nil {
		return f.dump(f)
	}
	return fmt.Appendf(nil, `{"n":%d}`, f.n), nil
}

func (f *fake) Load(_ context.Context, state json.RawMessage) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.load != nil {
		return f.load(f, state)
	}
	var s struct{ N int }
	err := json.Unmarshal(state, &s)
	f.n = s.N
	return err
}

// stuckVersion changes without its number; movingVersion moves by being read.
type stuckVersion struct{ fake }

func (*stuckVersion) StateVersion() uint64 { return 7 }

type movingVersion struct {
	fake
	n atomic.Uint64
}

func (m *movingVersion) StateVersion() uint64 { return m.n.Load() }
func (m *movingVersion) Dump(ctx context.Context) (json.RawMessage, error) {
	m.n.Add(1)
	return m.fake.Dump(ctx)
}

// aliased hands out one buffer again and again.
type aliased struct {
	fake
	buf   [8]byte
	calls int
}

func (a *aliased) Dump(context.Context) (json.RawMessage, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.calls++
	if a.calls == 2 { // what the first call returned changes, what this one says does not
		copy(a.buf[:], `{"n":8}`)
		return json.RawMessage(`{"n":7}`), nil
	}
	return append(a.buf[:0], `{"n":7}`...), nil
}

func TestCheckResumableExplainsWhatIsBroken(t *testing.T) {
	strict := func(f *fake, state json.RawMessage) error {
		dec := json.NewDecoder(strings.NewReader(string(state)))
		dec.DisallowUnknownFields()
		var s struct{ N int }
		err := dec.Decode(&s)
		f.n = s.N
		return err
	}
	of := func(dump func(*fake) (json.RawMessage, error), load func(*fake, json.RawMessage) error) func(int) perdure.Resumable {
		return func(n int) perdure.Resumable { return &fake{n: n, dump: dump, load: load} }
	}
	text := func(s string) func(*fake) (json.RawMessage, error) {
		return func(f *fake) (json.RawMessage, error) {
			if f.n == 0 {
				return json.RawMessage(`{}`), nil
			}
			return json.RawMessage(s), nil
		}
	}
	tests := map[string]struct {
		make func(n int) perdure.Resumable
		want []string // each is in some message
	}{
		"dump fails":       {of(func(*fake) (json.RawMessage, error) { return nil, errors.New("no luck") }, nil), []string{"rule 1", "no luck"}},
		"dump panics":      {of(func(*fake) (json.RawMessage, error) { panic("oh") }, nil), []string{"rule 1", "panic: oh"}},
		"no JSON":          {of(text(`{"n":`), nil), []string{"rule 1", "not JSON"}},
		"half a surrogate": {of(text(`{"n":"\ud800"}`), nil), []string{"rule 1", "surrogate"}},
		"invalid UTF-8":    {of(text("{\"n\":\"\xff\"}"), nil), []string{"rule 1", "UTF-8"}},
		"no object":        {of(text(`[7]`), nil), []string{"rule 1", "not a JSON object"}},
		"duplicate keys":   {of(text(`{"n":7,"m":{"a":1,"b":[{}],"a":2}}`), nil), []string{"rule 1", `the key "a" twice`}},
		"too large":        {of(text(`{"n":"`+strings.Repeat("x", perdure.MaxDump)+`"}`), nil), []string{"rule 1", "the limit is"}},
		"refuses unknown":  {of(nil, strict), []string{"rule 2", "unknown_key"}},
		"refuses {}": {of(nil, func(f *fake, state json.RawMessage) error {
			var s map[string]int
			if err := json.Unmarshal(state, &s); err != nil {
				return nil
			}
			if _, ok := s["n"]; !ok {
				return errors.New("n is missing")
			}
			f.n = s["n"]
			return nil
		}), []string{"rule 2", "Load({})", "n is missing"}},
		"load panics": {of(nil, func(f *fake, state json.RawMessage) error {
			var s map[string]json.RawMessage
			_ = json.Unmarshal(state, &s)
			return json.Unmarshal(s["n"][:1], &f.n)
		}), []string{"rule 2", "panic"}},
		"cannot dump when cold": {of(func(f *fake) (json.RawMessage, error) {
			if f.n == 0 {
				return nil, errors.New("nothing loaded")
			}
			return fmt.Appendf(nil, `{"n":%d}`, f.n), nil
		}, nil), []string{"rule 2", "nothing loaded"}},
		"nothing to check": {func(int) perdure.Resumable { return new(fake) }, []string{"rule 2", "is not populated"}},
		"forgets":          {of(nil, func(*fake, json.RawMessage) error { return nil }), []string{"rule 1", "dumps something different"}},
		"rejects its own": {of(nil, func(f *fake, state json.RawMessage) error {
			if strings.Contains(string(state), "7") {
				return errors.New("seven")
			}
			return nil
		}), []string{"rule 1", "does not accept what Dump returned: seven"}},
		"reads one form only": {of(nil, func(f *fake, state json.RawMessage) error {
			if _, err := fmt.Sscanf(string(state), `{"n":%d}`, &f.n); err != nil && strings.Contains(string(state), "\n") {
				return errors.New("bad form")
			}
			return nil
		}), []string{"rule 1", "decoded and encoded again", "bad form"}},
		"keeps the bytes it is given": {func(n int) perdure.Resumable {
			f := &fake{n: n}
			var kept json.RawMessage
			f.load = func(_ *fake, state json.RawMessage) error { kept = state; return nil }
			f.dump = func(f *fake) (json.RawMessage, error) {
				if kept != nil {
					return kept, nil
				}
				return fmt.Appendf(nil, `{"n":%d}`, f.n), nil
			}
			return f
		}, []string{"rule 1", "dumps something different"}},
		"dump drains": {of(func(f *fake) (json.RawMessage, error) {
			f.n--
			return fmt.Appendf(nil, `{"n":%d}`, f.n+1), nil
		}, nil), []string{"rule 3", "second Dump differs"}},
		"dump in any order": {func(n int) perdure.Resumable {
			calls := 0
			return &fake{n: n, dump: func(f *fake) (json.RawMessage, error) {
				if calls++; calls%2 == 0 {
					return fmt.Appendf(nil, `{"m":1,"n":%d}`, f.n), nil
				}
				return fmt.Appendf(nil, `{"n":%d,"m":1}`, f.n), nil
			}}
		}, []string{"rule 3", "different bytes"}},
		"dump wears out": {func(n int) perdure.Resumable {
			calls := 0
			return &fake{n: n, dump: func(f *fake) (json.RawMessage, error) {
				if calls++; calls > 10 {
					return nil, errors.New("worn out")
				}
				return fmt.Appendf(nil, `{"n":%d}`, f.n), nil
			}}
		}, []string{"rule 3", "worn out"}},
		"dump reuses its buffer": {func(n int) perdure.Resumable {
			if n == 0 {
				return new(fake)
			}
			return new(aliased)
		}, []string{"rule 3", "it reuses"}},
		"version stays": {func(n int) perdure.Resumable { return &stuckVersion{fake{n: n}} }, []string{"rule 3", "never saved"}},
		"version moves": {func(n int) perdure.Resumable { return &movingVersion{fake: fake{n: n}} }, []string{"rule 3", "only Dump was called"}},
	}
	for _, name := range slices.Sorted(maps.Keys(tests)) {
		t.Run(name, func(t *testing.T) {
			test := tests[name]
			r := &recorder{ctx: t.Context()}
			CheckResumable(r, func() perdure.Resumable { return test.make(7) }, func() perdure.Resumable { return test.make(0) })
			for _, want := range test.want {
				if !slices.ContainsFunc(r.said, func(s string) bool { return strings.Contains(s, want) }) {
					t.Errorf("no message says %q: %.500q", want, r.said)
				}
			}
		})
	}
}

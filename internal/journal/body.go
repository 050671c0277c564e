package journal

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"github.com/perdure/perdure/internal/blob"
)

// Value is a JSON value in an entry: the value itself, or a reference to a blob
// that holds it. It is encoded as [value] or {"hash":…,"size":…}. A thread restored
// from a snapshot also has values of which it knows only the place.
type Value struct {
	JSON json.RawMessage
	Blob *blob.Ref
	At   Place // where it is in the journal, 0 if that is not known
}

// IsZero reports whether there is no value at all.
func (v Value) IsZero() bool { return v.JSON == nil && v.Blob == nil && v.At == 0 }

// Elsewhere reports whether the value has to be read from the journal.
func (v Value) Elsewhere() bool { return v.JSON == nil && v.Blob == nil && v.At != 0 }

// MarshalJSON implements json.Marshaler.
func (v Value) MarshalJSON() ([]byte, error) {
	if v.Blob != nil {
		return json.Marshal(v.Blob)
	}
	if v.Elsewhere() {
		return nil, fmt.Errorf("journal: a value of entry %d was not read", v.At.Seq())
	}
	if v.JSON == nil {
		return []byte("[]"), nil
	}
	b := make([]byte, 0, len(v.JSON)+2)
	b = append(b, '[')
	b = append(b, v.JSON...)
	return append(b, ']'), nil
}

// UnmarshalJSON implements json.Unmarshaler.
func (v *Value) UnmarshalJSON(b []byte) error {
	*v = Value{}
	switch {
	case len(b) > 1 && b[0] == '[':
		if inner := bytes.TrimSpace(b[1 : len(b)-1]); len(inner) > 0 {
			v.JSON = bytes.Clone(inner)
		}
		return nil
	case len(b) > 0 && b[0] == '{':
		v.Blob = new(blob.Ref)
		return json.Unmarshal(b, v.Blob)
	case string(b) == "null":
		return nil
	}
	return errors.New("journal: a value is neither a list nor a blob")
}

// Failure is an error as the journal records it.
type Failure struct {
	Codes []string `json:"codes,omitempty"` // of the errors that it matches when read back
	Msg   string   `json:"msg"`
	Stack string   `json:"stack,omitempty"`
}

// Change is one change of the thread's state.
type Change struct {
	Key    string  `json:"k"`
	Set    *Value  `json:"set,omitempty"`
	Delete bool    `json:"del,omitempty"`
	Add    *int64  `json:"add,omitempty"`
	Append []Value `json:"app,omitempty"`
	Result bool    `json:"res,omitempty"` // append the result of the step
	Edit   []Edit  `json:"edit,omitempty"`

	// Item is the result of an edit, set only in the tree of a run, which does
	// not see the changes that other runs make to the text.
	Item *Item `json:"-"`
}

// Edit is one change of a text: Del bytes at At become Ins.
type Edit struct {
	At  int    `json:"at"`
	Del int    `json:"del,omitempty"`
	Ins string `json:"ins,omitempty"`
}

// Changes returns the changes that a body makes to the state. In those that append
// the step's result, Append holds it.
func (b *Body) Changes() []Change {
	if !slices.ContainsFunc(b.State, func(c Change) bool { return c.Result }) {
		return b.State
	}
	all := slices.Clone(b.State)
	for i := range all {
		if all[i].Result && !b.Value.IsZero() { // a cleanup returns nothing
			all[i].Append = []Value{b.Value}
		}
	}
	return all
}

// Question is an ask as the journal records it.
type Question struct {
	Kind      string                     `json:"kind,omitempty"`
	Prompt    string                     `json:"prompt,omitempty"`
	Schema    json.RawMessage            `json:"schema,omitempty"`
	Schemas   map[string]json.RawMessage `json:"schemas,omitempty"` // by decision
	Decisions []string                   `json:"decisions,omitempty"`
	Guards    string                     `json:"guards,omitempty"` // hash of the call that it protects
	Allows    []string                   `json:"allows,omitempty"` // the steps of its frame that the answer is about
	Who       []string                   `json:"who,omitempty"`    // who may answer; anyone if empty
	Want      string                     `json:"want,omitempty"`   // expected kind of JSON value
	Data      Value                      `json:"data,omitzero"`    // what the person needs to see
	Default   *Answer                    `json:"default,omitempty"`
}

// Answer is the answer to an ask.
type Answer struct {
	Decision string `json:"decision,omitempty"`
	Message  string `json:"message,omitempty"`
	By       string `json:"by,omitempty"`
	Value    Value  `json:"value,omitzero"`
}

// Origin says where a thread comes from: the parent of a child, or the thread
// that a fork was made from.
type Origin struct {
	Name   string `json:"name,omitempty"`   // of the other thread in the store
	Thread string `json:"thread,omitempty"` // its id
	At     uint64 `json:"at,omitempty"`     // fork: the last sequence that both share
	Head   string `json:"head,omitempty"`   // fork: hash of the entry after which it begins
	Inside bool   `json:"inside,omitempty"` // fork: everything that both share was imported
	Key    string `json:"key,omitempty"`    // import: the trusted key that signed the file
	Run    uint64 `json:"run,omitempty"`    // child: the run that spawned it
	RunID  string `json:"runid,omitempty"`
	Path   string `json:"path,omitempty"`  // child: of the Spawn
	Depth  int    `json:"depth,omitempty"` // child: number of threads above it
}

// ToArchive is the Name in the erased entry of a thread that was archived.
const ToArchive = "archive"

// Imported reports whether everything before a forked entry was imported.
func (o *Origin) Imported() bool { return o != nil && (o.Name == "" || o.Inside) }

// Body is the content of an entry. The comments say which kinds use each field.
type Body struct {
	// Thread, Tenant, User: created, which may also have a State, and an ID and Key
	// if the request had a key. Title, Meta: created, metadata.
	Thread string            `json:"thread,omitempty"`
	Tenant string            `json:"tenant,omitempty"`
	User   string            `json:"user,omitempty"`
	Title  *string           `json:"title,omitempty"`
	Meta   map[string]string `json:"meta,omitempty"`

	// From: created of a child, forked. At: forked and rewound, a sequence.
	From *Origin `json:"from,omitempty"`
	At   uint64  `json:"at,omitempty"`

	// Void: forked and rewound; unused decisions no longer count, except those of
	// the asks in Keep. Older binaries do not set it.
	Void bool     `json:"void,omitempty"`
	Keep []string `json:"keep,omitempty"`

	// Child: spawned, the id of its thread.
	Child string `json:"child,omitempty"`

	// A queued input. Key is the digest of an idempotent start's request.
	ID     string           `json:"id,omitempty"`
	Flow   string           `json:"flow,omitempty"`
	Policy string           `json:"policy,omitempty"`
	Key    string           `json:"key,omitempty"`
	Budget map[string]int64 `json:"budget,omitempty"`
	Trace  string           `json:"trace,omitempty"`

	// Worker: claimed. Version: claimed and blocked, the fingerprint of the code.
	Worker  string `json:"worker,omitempty"`
	Version string `json:"version,omitempty"`

	// By, Reason: cancel, paused, resumed, retried, progress.
	By     string `json:"by,omitempty"`
	Reason string `json:"reason,omitempty"`

	// Nodes. Verb: which verb wrote a step entry, if it is not Step itself.
	Verb     string           `json:"verb,omitempty"`
	Attempt  int              `json:"att,omitempty"`
	Most     int              `json:"most,omitempty"`     // attempt: the limit of attempts
	Due      int64            `json:"due,omitempty"`      // attempt, asked, timer, waiting
	Timer    bool             `json:"timer,omitempty"`    // attempt: the run may be suspended until it is due
	Cleaning bool             `json:"cleaning,omitempty"` // attempt, asked, timer, waiting: it is below a cleanup
	Input    string           `json:"in,omitempty"`       // digest of a step's arguments
	Fail     *Failure         `json:"fail,omitempty"`
	State    []Change         `json:"state,omitempty"`
	Spend    map[string]int64 `json:"spend,omitempty"`
	Deps     map[string]Value `json:"deps,omitempty"`
	NotDone  bool             `json:"notdone,omitempty"` // an at-most-once step failed without having had an effect
	Allows   []string         `json:"allows,omitempty"`  // step: it is a decision about these steps of its frame
	Ask      *Question        `json:"ask,omitempty"`
	Answer   *Answer          `json:"answer,omitempty"`
	Of       string           `json:"of,omitempty"`   // answered, expired, progress: id of the ask
	Name     string           `json:"name,omitempty"` // of a signal, dep
	Plan     []string         `json:"plan,omitempty"`

	// Ended, blocked. Status also: signal and received of a child's end.
	Status  string   `json:"status,omitempty"`
	Unknown []string `json:"unknown,omitempty"` // paths of effects that may or may not have happened
	Diff    string   `json:"diff,omitempty"`

	// Blobs: queued, answered and signal, the files that it refers to by their digest.
	Blobs []Blob `json:"blobs,omitempty"`

	// Ref is the sequence of another entry: the one that holds this one's value,
	// or the signal or input that was taken.
	Ref uint64 `json:"ref,omitempty"`

	// Took is how long the function of a leaf step ran, in microseconds: step,
	// attempt.
	Took int64 `json:"us,omitempty"`

	// Value is the result, input, payload or output. It is the last field, so that
	// the first bytes show whether a body has only Took and Value.
	Value Value `json:"res,omitzero"`
}

// plainSize is the size of most bodies without their value.
const (
	plainTook, plainValue = `{"us":`, `"res":[`
	plainSize             = len(plainTook) + len(plainValue) + 24
)

// plain returns Value and Took of a body without parsing it. It reports false if
// the body may have other fields.
func (e *Entry) plain() (value json.RawMessage, took int64, ok bool) {
	n, at := len(e.Body), 1
	if n > len(plainTook) && string(e.Body[:len(plainTook)]) == plainTook {
		for at = len(plainTook); at < n && e.Body[at] >= '0' && e.Body[at] <= '9'; at++ {
			took = 10*took + int64(e.Body[at]-'0')
		}
		if digits := at - len(plainTook); digits == 0 || digits > 18 || e.Body[len(plainTook)] == '0' || at == n || e.Body[at] != ',' {
			return nil, 0, false
		}
		at++
	}
	from := at + len(plainValue)
	if n <= from+2 || e.Body[0] != '{' || string(e.Body[at:from]) != plainValue || span(e.Body, from-1) != n-1 || e.Body[n-1] != '}' {
		return nil, 0, false
	}
	value = json.RawMessage(e.Body[from : n-2 : n-2])
	return value, took, value[0] > ' ' && value[len(value)-1] > ' '
}

// check returns an error if a body lacks a field that the fold of its kind needs.
func (b *Body) check(k Kind) error {
	switch {
	case k == Asked && b.Ask == nil:
		return errors.New("an ask without a question")
	case k == Answered && b.Answer == nil, k == Expired && b.Answer == nil && b.Fail == nil:
		return errors.New("an answer that says nothing")
	case (k == Attempt || k == Problem || k == Closed) && b.Fail == nil:
		return errors.New("a failure that says nothing")
	case k == Forked && b.From == nil:
		return errors.New("a fork of nothing")
	case k == Rewound && b.At == 0:
		return errors.New("a rewind to nowhere")
	case k == Moved && b.Name == "":
		return errors.New("a move to nowhere")
	case k == Spawned && (b.Child == "" || b.Flow == ""):
		return errors.New("a child without a name")
	case k == Ended && !Status(b.Status).Final():
		return fmt.Errorf("an end with the status %q", b.Status)
	}
	return nil
}

// Encode returns the bytes of a body.
func (b *Body) Encode() (json.RawMessage, error) {
	return b.append(make(json.RawMessage, 0, b.size()))
}

// append appends the bytes of a body.
func (b *Body) append(raw []byte) ([]byte, error) {
	if short, ok := b.appendShort(raw); ok {
		return short, nil
	}
	long, err := encode(b)
	return append(raw, long...), err
}

// encode is json.Marshal without escapes for HTML, so that values keep their
// bytes.
func encode(v any) ([]byte, error) {
	var buf bytes.Buffer
	enc := json.NewEncoder(&buf)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		return nil, err
	}
	return bytes.TrimSuffix(buf.Bytes(), []byte("\n")), nil
}

// Read returns the body of an entry. It does not parse a body that has only a
// value, as most entries of a long run do.
func (e *Entry) Read() (Body, error) {
	if e.read != nil {
		return *e.read, nil
	}
	value, took, ok := e.value, e.took, e.value != nil
	if !ok {
		value, took, ok = e.plain()
	}
	if ok {
		return Body{Value: Value{JSON: value}, Took: took}, nil
	}
	b, err := e.parse()
	return *b, err
}

// Keep parses the body, so that later calls of Read on the entry or on copies of it
// need not. Their results share memory.
func (e *Entry) Keep() {
	if e.read != nil || e.value != nil {
		return
	}
	if value, took, ok := e.plain(); ok {
		e.value, e.took = value, took
	} else if b, err := e.parse(); err == nil {
		e.read = b
	}
}

func (e *Entry) parse() (*Body, error) {
	if b := readShort(e.Body); b != nil && (e.made || json.Valid(e.Body)) {
		return b, nil
	}
	b := new(Body)
	err := json.Unmarshal(e.Body, b)
	return b, err
}

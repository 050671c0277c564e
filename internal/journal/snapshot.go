package journal

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"sync"
)

// snapshotFormat is the number of the format of snapshots. Raise it when the
// same entries get another meaning: snapshots of before are then not used.
const snapshotFormat = 2

// A snapshot is
//
//	{"v":1,"shape":"…","sum":"…","thread":{…}}
//
// with a SHA-256 over what follows it, so that no damage goes unnoticed.
var snapshotHead = sync.OnceValue(func() string {
	return fmt.Sprintf(`{"v":%d,"shape":"%s","sum":"`, snapshotFormat, snapshotShape())
})

const (
	threadMark = `","thread":`
	threadEnd  = `}`
)

// snapshotShape is a digest of everything that this binary folds and keeps. A
// fold skips what it does not know, so a snapshot by another binary may lack
// what this one would have kept of the same entries.
func snapshotShape() string {
	c := codec{mode: naming}
	NewThread().code(&c)
	for _, t := range []reflect.Type{reflect.TypeFor[Body](), reflect.TypeFor[Change]()} {
		for _, f := range reflect.VisibleFields(t) {
			c.data = fmt.Appendf(c.data, "%s %s %s\n", f.Name, f.Type, f.Tag)
		}
	}
	for _, k := range slices.Sorted(maps.Values(kinds)) {
		c.data = fmt.Appendf(c.data, "%s\n", k)
	}
	sum := sha256.Sum256(c.data)
	return base64.RawURLEncoding.EncodeToString(sum[:9])
}

// Snapshot returns the bytes from which Restore makes the thread again. It is
// an error if a run is active, and if the thread has entries or values that
// another binary may understand and this one does not. What only a retry of an
// ended run needs, its base and its dumps, is not in it.
func (t *Thread) Snapshot() ([]byte, error) {
	switch r := t.Active(); {
	case r != nil:
		return nil, fmt.Errorf("no snapshot: run %s is active", r.ID)
	case t.Foreign != "":
		return nil, fmt.Errorf("no snapshot: %s", t.Foreign)
	}
	head := snapshotHead()
	c := codec{mode: writing, data: make([]byte, len(head)+hashSize, 4<<10)}
	c.mark(threadMark)
	t.code(&c)
	c.mark(threadEnd)
	if c.err != nil {
		return nil, fmt.Errorf("no snapshot: %w", c.err)
	}
	copy(c.data, head)
	sum := Hash(sha256.Sum256(c.data[len(head)+hashSize:]))
	copy(c.data[len(head):], sum.String())
	return c.data, nil
}

// Restore returns the thread of a snapshot. It keeps data. An error means that
// the snapshot is of another format, damaged or inconsistent; the thread is
// then to be folded from its journal.
func Restore(data []byte) (*Thread, error) {
	head := snapshotHead()
	if !bytes.HasPrefix(data, []byte(head)) {
		return nil, errors.New("the snapshot is of another format")
	}
	c := codec{data: data, at: len(head) + hashSize}
	if len(data) < c.at || Hash(sha256.Sum256(data[c.at:])).String() != string(data[len(head):c.at]) {
		return nil, errors.New("the snapshot is damaged: its hash does not follow from its bytes")
	}
	t := NewThread()
	c.mark(threadMark)
	t.code(&c)
	c.mark(threadEnd)
	switch {
	case c.err != nil:
	case c.at != len(data):
		c.fail("it goes on behind its end")
	case t.Active() != nil:
		c.fail("run %s is active", t.Active().ID)
	}
	if c.err != nil {
		return nil, fmt.Errorf("the snapshot is inconsistent: %w", c.err)
	}
	return t, nil
}

// A new field of Thread, Run or what they hold is one line in the function of
// its type: field for most, again for what runs of a thread have in common.
func (t *Thread) code(c *codec) {
	c.object(func() {
		field(c, "seq", &t.Seq, num)
		field(c, "head", &t.Head, digest)
		field(c, "time", &t.Time, num)
		field(c, "id", &t.ID, str)
		field(c, "tenant", &t.Tenant, str)
		field(c, "user", &t.User, str)
		field(c, "title", &t.Title, str)
		field(c, "meta", &t.Meta, dict(str[string]))
		field(c, "created", &t.Created, num)
		field(c, "epoch", &t.Epoch, num)
		field(c, "worker", &t.Worker, str)
		t.codeRuns(c)
		field(c, "state", &t.State, dict(codeItem))
		field(c, "deps", &t.Deps, dict(value))
		field(c, "spent", &t.Spent, dict(num[int64]))
		field(c, "signals", &t.Signals, list(codePending))
		t.codeAsks(c)
		field(c, "base", &t.Base, num)
		field(c, "fork", &t.Fork, maybe(codeOrigin))
		field(c, "import", &t.Import, maybe(codeOrigin))
		field(c, "imported", &t.Imported, num)
		field(c, "parent", &t.Parent, maybe(codeOrigin))
		field(c, "rewinds", &t.Rewinds, num)
		field(c, "erased", &t.Erased, yes)
		field(c, "shared", &t.shared, yes)
		field(c, "keys", &t.keys, set)
	})
}

// codeRun leaves out what only a retry of an ended run needs.
func codeRun(c *codec, r, before *Run) {
	field(c, "n", &r.N, num)
	field(c, "id", &r.ID, str)
	again(c, "flow", &r.Flow, before.Flow, str)
	again(c, "policy", &r.Policy, before.Policy, str)
	field(c, "key", &r.Key, str)
	again(c, "budget", &r.Budget, before.Budget, dict(num[int64]))
	field(c, "trace", &r.Trace, str)
	again(c, "by", &r.By, before.By, str)
	field(c, "input", &r.Input, value)
	field(c, "created", &r.Created, num)
	again(c, "status", &r.Status, before.Status, str)
	field(c, "start", &r.Start, num)
	field(c, "started", &r.Started, num)
	field(c, "ended", &r.Ended, num)
	field(c, "endseq", &r.EndSeq, num)
	field(c, "output", &r.Output, value)
	field(c, "ref", &r.Ref, num)
	field(c, "fail", &r.Fail, maybe(codeFailure))
	field(c, "unknown", &r.Unknown, list(str[string]))
	field(c, "diff", &r.Diff, str)
	again(c, "version", &r.Version, before.Version, str)
	field(c, "misfits", &r.Misfits, set)
	field(c, "cancelled", &r.Cancelled, yes)
	field(c, "orphan", &r.Orphan, yes)
	field(c, "taken", &r.Taken, num)
	field(c, "wake", &r.Wake, yes)
	again(c, "claims", &r.Claims, before.Claims, num)
	field(c, "deaths", &r.Deaths, num)
	field(c, "retries", &r.Retries, num)
	field(c, "postmortem", &r.PostMortem, value)
	field(c, "paused", &r.PausedAt, num)
	field(c, "held", &r.Held, yes)
	field(c, "suspended", &r.SuspendedAt, num)
	again(c, "silent", &r.silent, before.silent, yes)
	field(c, "resting", &r.resting, yes)
	again(c, "steps", &r.Steps, before.Steps, num)
	again(c, "last", &r.Last, before.Last, str)
	again(c, "plan", &r.Plan, before.Plan, list(str[string]))
	again(c, "planAt", &r.PlanAt, before.PlanAt, str)
	field(c, "reached", &r.Reached, set)
	field(c, "children", &r.Children, list(always(codeChild)))
	field(c, "waits", &r.Waits, dict(always(codeWait)))
	field(c, "failing", &r.Failing, dict(codeNote))
	field(c, "intents", &r.Intents, set)
	field(c, "errors", &r.Errors, list(codeNote))
	field(c, "cleaning", &r.Cleaning, yes)
	field(c, "spent", &r.Spent, dict(num[int64]))
	if !r.Status.Final() {
		field(c, "dumps", &r.Dumps, dict(value))
	}
}

func codeAsk(c *codec, a *Ask, run *uint64) {
	field(c, "id", &a.ID, str)
	field(c, "run", run, num)
	field(c, "path", &a.Path, str)
	field(c, "seq", &a.Seq, num)
	field(c, "time", &a.Time, num)
	field(c, "due", &a.Due, num)
	codeQuestion(c, &a.Question)
	field(c, "progress", &a.Progress, list(codeNote))
	field(c, "answer", &a.Answer, maybe(codeAnswer))
	field(c, "answered", &a.AnswerAt, num)
	field(c, "expired", &a.Expired, yes)
	field(c, "closed", &a.Closed, yes)
}

func codeQuestion(c *codec, q *Question) {
	field(c, "kind", &q.Kind, str)
	field(c, "prompt", &q.Prompt, str)
	field(c, "schema", &q.Schema, raw)
	field(c, "schemas", &q.Schemas, dict(raw))
	field(c, "decisions", &q.Decisions, list(str[string]))
	field(c, "guards", &q.Guards, str)
	field(c, "allows", &q.Allows, list(str[string]))
	field(c, "who", &q.Who, list(str[string]))
	field(c, "want", &q.Want, str)
	field(c, "data", &q.Data, value)
	field(c, "default", &q.Default, maybe(codeAnswer))
}

func codeAnswer(c *codec, a *Answer) {
	c.object(func() {
		field(c, "decision", &a.Decision, str)
		field(c, "message", &a.Message, str)
		field(c, "by", &a.By, str)
		field(c, "value", &a.Value, value)
	})
}

func codeFailure(c *codec, f *Failure) {
	c.object(func() {
		field(c, "codes", &f.Codes, list(str[string]))
		field(c, "msg", &f.Msg, str)
		field(c, "stack", &f.Stack, str)
	})
}

func codeNote(c *codec, n *Note) {
	c.object(func() {
		field(c, "seq", &n.Seq, num)
		field(c, "time", &n.Time, num)
		field(c, "path", &n.Path, str)
		field(c, "value", &n.Value, value)
		field(c, "fail", &n.Fail, maybe(codeFailure))
	})
}

func codeWait(c *codec, w *Wait) {
	c.object(func() {
		field(c, "kind", &w.Kind, str)
		field(c, "seq", &w.Seq, num)
		field(c, "since", &w.Since, num)
		field(c, "due", &w.Due, num)
		field(c, "ask", &w.Ask, str)
		field(c, "signal", &w.Signal, str)
		field(c, "cleaning", &w.Cleaning, yes)
	})
}

func codeOrigin(c *codec, o *Origin) {
	c.object(func() {
		field(c, "name", &o.Name, str)
		field(c, "thread", &o.Thread, str)
		field(c, "at", &o.At, num)
		field(c, "head", &o.Head, str)
		field(c, "inside", &o.Inside, yes)
		field(c, "key", &o.Key, str)
		field(c, "run", &o.Run, num)
		field(c, "runid", &o.RunID, str)
		field(c, "path", &o.Path, str)
		field(c, "depth", &o.Depth, num)
	})
}

func codeChild(c *codec, k *Child) {
	c.object(func() {
		field(c, "id", &k.ID, str)
		field(c, "path", &k.Path, str)
		field(c, "seq", &k.Seq, num)
		field(c, "flow", &k.Flow, str)
		field(c, "input", &k.Input, value)
		field(c, "budget", &k.Budget, dict(num[int64]))
		field(c, "joined", &k.Joined, yes)
		field(c, "end", &k.End, num)
		field(c, "failed", &k.Failed, yes)
		field(c, "retries", &k.Retries, num)
		field(c, "stale", &k.Stale, yes)
		field(c, "other", &k.Other, yes)
		field(c, "spent", &k.Spent, dict(num[int64]))
		field(c, "lost", &k.Lost, yes)
		field(c, "doomed", &k.Doomed, yes)
	})
}

func codePending(c *codec, p *Pending) {
	c.object(func() {
		field(c, "seq", &p.Seq, num)
		field(c, "name", &p.Name, str)
		field(c, "value", &p.Value, value)
		field(c, "fail", &p.Fail, maybe(codeFailure))
		field(c, "spend", &p.Spend, dict(num[int64]))
	})
}

// codeItem writes the base first, then what was appended or edited.
func codeItem(c *codec, i *Item) {
	var tail []Value
	if c.mode != reading {
		tail = i.Values()
	}
	c.object(func() {
		field(c, "base", &i.Base, value)
		field(c, "tail", &tail, list(value))
		field(c, "text", &i.Text, yes)
	})
	if c.mode == reading && c.err == nil {
		text := i.Text
		*i, _ = Change{Append: tail}.Next(Item{Base: i.Base})
		i.Text = text
	}
}

package perduretest

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/base64"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/perdure/perdure/internal/blob"
	"github.com/perdure/perdure/internal/journal"
	"github.com/perdure/perdure/internal/linediff"
	"github.com/perdure/perdure/internal/tree"
	"github.com/perdure/perdure/store"
)

// threads is where a store keeps the journals of threads.
const threads = "thread/"

// recording is a thread's journal as it is in the store.
type recording struct {
	name    string // of the thread in the store
	thread  *journal.Thread
	entries []journal.Entry
	bodies  []journal.Body
	names   *names
	label   string // the thread's id, or for a child its place below its parent's label
}

// Trace returns a thread's journal in readable form, one entry per line: its
// sequence, its time since the first entry in whole seconds, its kind, its run
// with the epoch of the worker that wrote it, its path, and its content. Ids are
// replaced by short stable names, and hashes and stacks are omitted, so that two
// runs of one flow have the same trace, unless branches of a group committed in a
// different order. After a wait between two attempts, which is random, the time is
// shown as ~.
func Trace(ctx context.Context, s store.Store, thread string) (string, error) {
	all, err := recordings(ctx, s)
	if err != nil {
		return "", err
	}
	var found *recording
	for _, r := range all {
		if r.thread.ID == thread {
			if found != nil {
				return "", fmt.Errorf("perduretest: two tenants have a thread %q", thread)
			}
			found = r
		}
	}
	if found == nil {
		return "", fmt.Errorf("perduretest: there is no thread %q among the %d in the store", thread, len(all))
	}
	return found.String(), nil
}

// recordings reads all threads of a store, ordered by their ids.
func recordings(ctx context.Context, s store.Store) ([]*recording, error) {
	var all []*recording
	for name, err := range s.Journals(ctx, "") {
		if err != nil {
			return nil, err
		}
		if name, ok := strings.CutPrefix(name, threads); ok {
			r, err := record(ctx, s, name)
			if err != nil {
				return nil, fmt.Errorf("perduretest: journal %s: %w", name, err)
			}
			all = append(all, r)
		}
	}
	nameChildren(all)
	slices.SortFunc(all, func(a, b *recording) int {
		return cmp.Or(cmp.Compare(a.label, b.label), cmp.Compare(a.name, b.name))
	})
	return all, nil
}

// nameChildren labels children, whose ids differ from run to run, so that the
// labels do not.
func nameChildren(all []*recording) {
	byID := map[string]*recording{}
	for _, r := range all {
		byID[r.thread.ID], r.label = r, r.thread.ID
	}
	var name func(r *recording)
	name = func(r *recording) {
		number := map[string]int{}
		var below []*recording
		for _, run := range r.thread.Runs {
			for _, c := range run.Children {
				path := tree.Names(c.Path)
				number[path]++
				label := r.label + ":" + path
				if number[path] > 1 {
					label += fmt.Sprint("#", number[path])
				}
				r.names.pairs = append(r.names.pairs, c.ID, label)
				if child := byID[c.ID]; child != nil {
					child.label = label
					below = append(below, child)
				}
			}
		}
		for _, child := range below { // their first entry names the parent
			child.names.pairs = append(child.names.pairs, r.names.pairs...)
			name(child)
		}
		r.names.replacer = strings.NewReplacer(r.names.pairs...)
	}
	for _, r := range all {
		if r.thread.Parent == nil {
			name(r)
		}
	}
}

func record(ctx context.Context, s store.Store, name string) (*recording, error) {
	r := &recording{name: name, thread: journal.NewThread()}
	for line, err := range s.Read(ctx, threads+name, 0) {
		if err != nil {
			return nil, err
		}
		e, err := r.thread.Read(line.Seq, line.Data)
		if err != nil {
			return nil, fmt.Errorf("entry %d: %w", line.Seq, err)
		}
		var b journal.Body
		if e.Kind.Known() {
			if b, err = e.Read(); err != nil {
				return nil, fmt.Errorf("entry %d: %w", line.Seq, err)
			}
		}
		r.entries, r.bodies = append(r.entries, e), append(r.bodies, b)
	}
	r.names = r.nameIDs()
	return r, nil
}

// String returns the trace.
func (r *recording) String() string {
	var b strings.Builder
	jitter := int64(0) // the time from which times depend on a random wait
	for i, e := range r.entries {
		when := "~"
		if jitter == 0 || e.Time <= jitter {
			// A worker may take some milliseconds to notice that it is due.
			when = "+" + micros(e.Time-r.entries[0].Time).Truncate(time.Second).String()
		}
		if e.Kind == journal.Attempt && r.bodies[i].Due != 0 && jitter == 0 {
			jitter = e.Time
		}
		fmt.Fprintf(&b, "%d %s %s", e.Seq, when, e.Kind)
		if e.Run != 0 {
			fmt.Fprintf(&b, " %s", r.names.small("run", fmt.Sprint(e.Run)))
		}
		if e.Epoch != 0 {
			fmt.Fprintf(&b, "#%d", e.Epoch)
		}
		if e.Path != "" {
			fmt.Fprintf(&b, " %s", e.Path)
		}
		if text := r.body(e, r.bodies[i]); text != "{}" {
			fmt.Fprintf(&b, " %s", text)
		}
		if due := r.bodies[i].Due; due != 0 && e.Kind != journal.Attempt {
			fmt.Fprintf(&b, " due in %s", micros(due-e.Time).Round(100*time.Millisecond))
		}
		b.WriteByte('\n')
	}
	return b.String()
}

func micros(us int64) time.Duration { return time.Duration(us) * time.Microsecond }

// body returns the content of an entry, without what differs from run to run.
func (r *recording) body(e journal.Entry, b journal.Body) string {
	if !e.Kind.Known() {
		return string(e.Body)
	}
	b.Due, b.Key, b.Took = 0, "", 0
	b.Version = r.names.small("version", b.Version)
	b.Input = r.names.input(tree.Names(e.Path), b.Input)
	if b.Fail != nil {
		fail := *b.Fail
		if fail.Stack != "" {
			fail.Stack = "…"
		}
		b.Fail = &fail
	}
	b.Value = short(b.Value)
	if b.Answer != nil {
		answer := *b.Answer
		answer.Value = short(answer.Value)
		b.Answer = &answer
	}
	if len(b.Deps) > 0 {
		deps := map[string]journal.Value{}
		for key, v := range b.Deps {
			deps[key] = short(v)
		}
		b.Deps = deps
	}
	text, err := b.Encode()
	if err != nil {
		return "unreadable: " + err.Error()
	}
	return r.names.replace(string(text))
}

// short omits the hash of a blob.
func short(v journal.Value) journal.Value {
	if v.Blob != nil {
		v.Blob = &blob.Ref{Hash: "…", Size: v.Blob.Size}
	}
	return v
}

// names gives ids short stable names, in order of appearance.
type names struct {
	known    map[string]string
	count    map[string]int
	pairs    []string
	replacer *strings.Replacer
}

// input returns the short name of a digest of arguments. It counts by path, since
// steps of different branches come in any order.
func (n *names) input(path, digest string) string {
	what := "input of " + path + " "
	if name, ok := strings.CutPrefix(n.small(what, digest), what); ok {
		return "input" + name
	}
	return ""
}

// small returns the short name of an id.
func (n *names) small(what, id string) string {
	if id == "" {
		return ""
	}
	name, ok := n.known[what+" "+id]
	if !ok {
		n.count[what]++
		name = fmt.Sprint(what, n.count[what])
		n.known[what+" "+id] = name
	}
	return name
}

// text has an id replaced wherever it occurs.
func (n *names) text(what, id string) {
	if id != "" {
		n.pairs = append(n.pairs, id, n.small(what, id))
	}
}

func (n *names) replace(text string) string { return n.replacer.Replace(text) }

// generated matches the ids of threads and runs that the runtime generates.
var generated = regexp.MustCompile(`^[0-9a-hjkmnp-tv-z]{24}$`)

// nameIDs finds the ids of a journal.
func (r *recording) nameIDs() *names {
	n := &names{known: map[string]string{}, count: map[string]int{}}
	_, incarnation, _ := strings.Cut(r.name, ".")
	keys := map[string]bool{}
	for i, e := range r.entries {
		b := r.bodies[i]
		switch e.Kind {
		case journal.Created:
			if generated.MatchString(b.Thread) {
				n.text("thread", b.Thread)
			}
		case journal.Queued:
			name := n.small("run", fmt.Sprint(e.Seq))
			n.pairs = append(n.pairs, b.ID, name)
		case journal.Claimed:
			n.text("worker", b.Worker)
		case journal.Asked:
			name := n.small("ask", e.ID)
			n.pairs = append(n.pairs, incarnation+"."+e.ID, name, e.ID, name)
		}
		for path := tree.Names(e.Path); path != "" && !keys[fmt.Sprint(e.Run, path)]; path = path[:strings.LastIndexByte(path, '/')] {
			keys[fmt.Sprint(e.Run, path)] = true
			n.pairs = append(n.pairs, r.key(e.Run, path), "key-of-"+path)
		}
	}
	n.pairs = append(n.pairs, r.name, "thread", incarnation, "thread")
	n.replacer = strings.NewReplacer(n.pairs...)
	return n
}

// key returns what perdure.Key gives at a path.
func (r *recording) key(run uint64, path string) string {
	sum := sha256.Sum256(fmt.Appendf(nil, "%s\n%d\n%s", r.name, run, path))
	return base64.RawURLEncoding.EncodeToString(sum[:18])
}

// A flag called update would collide with one that a test package defines itself,
// so this one has another name, and theirs works as well.
var update = flag.Bool("perdure.update", false, "rewrite the golden files of perduretest.Golden")

func updating() bool {
	f := flag.Lookup("update")
	return *update || f != nil && f.Value.String() == "true"
}

// Golden compares the [Trace] of a thread with a file, for example
// "testdata/refund.txt". Run go test with -perdure.update to accept the trace as
// it is, or with -update if the test package defines such a flag.
//
// Branches of a group that are busy at the same time commit in any order. In a
// bubble of virtual time, let their steps take different times.
func Golden(t testing.TB, s store.Store, thread, file string) {
	t.Helper()
	got, err := Trace(context.WithoutCancel(t.Context()), s, thread)
	if err != nil {
		t.Errorf("golden trace: %v", err)
		return
	}
	if updating() {
		err := os.MkdirAll(filepath.Dir(file), 0o777)
		if err == nil {
			err = os.WriteFile(file, []byte(got), 0o666)
		}
		if err != nil {
			t.Errorf("golden trace: %v", err)
		}
		return
	}
	data, err := os.ReadFile(file)
	if err != nil {
		t.Errorf("golden trace of thread %s: %v; run with -perdure.update to create it. The trace is:\n%s", thread, err, got)
		return
	}
	if want := strings.ReplaceAll(string(data), "\r\n", "\n"); got != want {
		t.Errorf("the trace of thread %s differs from %s; if this is intended, run with -perdure.update\n%s", thread, file, strings.Join(linediff.Lines(want, got), "\n"))
	}
}

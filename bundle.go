package perdure

import (
	"archive/zip"
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"regexp"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"time"

	"github.com/perdure/perdure/internal/clock"
	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/journal"
	"github.com/perdure/perdure/internal/tree"
	"github.com/perdure/perdure/store"
)

// BundleOptions say what a bundle holds besides what every bundle does.
type BundleOptions struct {
	Names    bool           // the names in the code: of flows, steps, signals and units; they may contain what users wrote
	Hosts    bool           // the names of the machines on which workers run
	Contents bool           // everything: names, texts of errors, the thread's whole export
	About    map[string]any // what the caller knows about its own process; written as it is
}

// Bundle writes what someone who helps with a run needs to know, as one zip file to
// attach to a ticket: the post-mortem of the run, "" for the newest of the thread,
// the shape of the thread's journal, versions, the kind of store, the options of the
// runtime, the workers and the last lines of the log.
//
// Unless the options say otherwise, nothing in it was written by users, models or
// tools: no inputs, outputs, messages, states, titles, users, metadata, texts of
// errors, ids of threads, names of steps, or hosts. Names are replaced by others, the
// same for the same name. What remains are kinds, sequences, times, sizes, ids that
// the runtime generated, codes of errors that the runtime defines, and frames of
// stacks. README.txt in the file says the same.
//
// After an error the file is incomplete.
func (r *Runtime) Bundle(ctx context.Context, thread, run string, w io.Writer, o BundleOptions) error {
	m, err := r.PostMortem(ctx, thread, run)
	if err != nil {
		return err
	}
	name, err := r.tenant.Find(ctx, thread)
	if err != nil {
		return err
	}
	b := &bundler{r: r, zip: zip.NewWriter(w), o: o, m: m, name: name, known: map[string]string{}, key: make([]byte, 32), now: clock.Now()}
	rand.Read(b.key)
	if err := b.write(ctx); err != nil {
		return fmt.Errorf("perdure: the bundle of run %s: %w", m.Run, err)
	}
	return nil
}

// bundler writes one bundle.
type bundler struct {
	r     *Runtime
	zip   *zip.Writer
	o     BundleOptions
	m     *PostMortem
	name  string            // of the thread in the store
	known map[string]string // what stands for the names seen so far
	key   []byte            // of the sums, thrown away afterwards
	now   time.Time
}

func (b *bundler) write(ctx context.Context) error {
	whole := *b.m
	files := []struct {
		name  string
		write func(io.Writer) error
	}{
		{"README.txt", func(w io.Writer) error { _, err := io.WriteString(w, b.readme()); return err }},
		{"postmortem.json", func(w io.Writer) error { return indent(w, b.postMortem(whole)) }},
		{"environment.json", func(w io.Writer) error { return indent(w, b.environment()) }},
		{"workers.json", func(w io.Writer) error { return b.workers(ctx, w) }},
		{"journal.jsonl", func(w io.Writer) error { return b.journal(ctx, w) }},
		{"log.jsonl", func(w io.Writer) error { return b.log(ctx, w) }},
	}
	for _, f := range files {
		out, err := b.create(f.name)
		if err == nil {
			err = f.write(out)
		}
		if err != nil {
			return fmt.Errorf("%s: %w", f.name, err)
		}
	}
	if b.o.Contents {
		out, err := b.create("export.jsonl")
		if err == nil {
			err = b.r.Export(ctx, b.m.Thread, out, ExportOptions{})
		}
		if err != nil {
			return fmt.Errorf("export.jsonl: %w", err)
		}
	}
	return b.zip.Close()
}

func (b *bundler) create(name string) (io.Writer, error) {
	return b.zip.CreateHeader(&zip.FileHeader{Name: name, Method: zip.Deflate, Modified: b.now})
}

func indent(w io.Writer, v any) error {
	enc := json.NewEncoder(w)
	enc.SetIndent("", "  ")
	return enc.Encode(v)
}

// alias returns what stands for a name: the name itself if names are wanted.
func (b *bundler) alias(kind, name string) string {
	if name == "" || b.o.Names || b.o.Contents {
		return name
	}
	a, ok := b.known[kind+name]
	if !ok {
		a = fmt.Sprint(kind, len(b.known)+1)
		b.known[kind+name] = a
	}
	return a
}

// path returns what stands for a path.
func (b *bundler) path(path string) string {
	parts := strings.Split(path, "/")
	for i := range parts {
		parts[i] = b.alias("n", parts[i])
	}
	return strings.Join(parts, "/")
}

// text returns what stands for a text that anyone may have written.
func (b *bundler) text(s string) string {
	if s == "" || b.o.Contents {
		return s
	}
	return fmt.Sprintf("(%d bytes)", len(s))
}

// thread returns what stands for the id of a thread.
func (b *bundler) thread(id string) string {
	if b.o.Contents {
		return id
	}
	a := b.known["thread "+id]
	if a == "" {
		a = fmt.Sprint("t", len(b.known)+1)
		b.known["thread "+id] = a
	}
	return a
}

func (b *bundler) amounts(by map[string]int64) map[string]int64 {
	if by == nil {
		return nil
	}
	all := map[string]int64{}
	for unit, n := range by {
		all[b.alias("u", unit)] = n
	}
	return all
}

// ownCodes are the codes of errors that packages of this module define.
var ownCodes = []string{"composite", "cancelled", "failed-fast", "timeout", "expired", "budget", "panic", "not-json", "option", "dep",
	"unknown-outcome", "child", "child-cancelled", "too-large", "erased", "archived", "restored", "permanent", "poison",
	"llm-failed", "llm-refused", "llm-too-long", "agent-limit", "agent-mistakes", "agent-rejected", "agent-fatal", "agent-option", "agent-rule", "agent-no-rule",
	"agent-credential", "agent-no-credential", "agent-unsealed", "agent-no-file", "agent-path", "agent-not-text", "agent-no-memory", "agent-memory-conflict", "agent-namespace",
	"mcp-option", "mcp-unreachable", "mcp-refused", "mcp-failed", "mcp-lost", "mcp-list", "mcp-closed"}

func (b *bundler) codes(codes []string) (kept []string) {
	for _, c := range codes {
		if !slices.Contains(ownCodes, c) {
			c = b.alias("c", c)
		}
		kept = append(kept, c)
	}
	return kept
}

// A frame of a stack is a function and a place. Arguments and folders, which may
// have the names of people, are left out.
var (
	frameFunc  = regexp.MustCompile(`^(created by )?([\w.\-/*()\[\]·…{}]+)\(.*\)$`)
	framePlace = regexp.MustCompile(`^\t.*?([\w.\-]+\.(?:go|s):\d+)(?: \+0x[0-9a-f]+)?$`)
)

func (b *bundler) stack(s string) string {
	if b.o.Contents {
		return s
	}
	var kept []string
	for line := range strings.SplitSeq(s, "\n") {
		if m := frameFunc.FindStringSubmatch(line); m != nil {
			kept = append(kept, m[2])
		} else if m := framePlace.FindStringSubmatch(line); m != nil {
			kept = append(kept, "\t"+m[1])
		}
	}
	return strings.Join(kept, "\n")
}

// postMortem returns a post-mortem without what the bundle must not have.
func (b *bundler) postMortem(m PostMortem) PostMortem {
	m.Thread, m.Flow, m.Error, m.Codes, m.Stack, m.Diff = b.thread(m.Thread), b.alias("f", m.Flow), b.text(m.Error), b.codes(m.Codes), b.stack(m.Stack), b.text(m.Diff)
	m.Usage.Spent, m.Usage.Budget = b.amounts(m.Usage.Spent), b.amounts(m.Usage.Budget)
	m.Failures, m.Effects, m.Events = slices.Clone(m.Failures), slices.Clone(m.Effects), slices.Clone(m.Events)
	for i := range m.Failures {
		f := &m.Failures[i]
		f.Path, f.Error, f.Codes, f.Stack = b.path(f.Path), b.text(f.Error), b.codes(f.Codes), b.stack(f.Stack)
	}
	for i := range m.Effects {
		m.Effects[i].Path = b.path(m.Effects[i].Path)
	}
	for i := range m.Events {
		m.Events[i].Path = b.path(m.Events[i].Path)
	}
	m.Children = slices.Clone(m.Children)
	for i := range m.Children {
		c := &m.Children[i]
		c.Path, c.Thread, c.Flow = b.path(c.Path), b.thread(c.Thread), b.alias("f", c.Flow)
	}
	m.Waits = slices.Clone(m.Waits)
	for i := range m.Waits {
		w := &m.Waits[i]
		w.Path, w.Signal = b.path(w.Path), b.alias("s", w.Signal)
		if w.Child != "" {
			w.Child = b.thread(w.Child)
		}
	}
	return m
}

// environment is where a run was executed, as far as this process knows.
type environment struct {
	Perdure    string         `json:"perdure"` // version of the module
	Version    string         `json:"version"` // of the code, see Options
	Go         string         `json:"go"`
	OS         string         `json:"os"`
	Arch       string         `json:"arch"`
	CPUs       int            `json:"cpus"`
	Format     int            `json:"format"` // of journals
	Made       time.Time      `json:"made"`
	Store      []string       `json:"store"` // its type, wrappers first
	Durability string         `json:"durability"`
	Flows      []string       `json:"flows"`
	Options    map[string]any `json:"options"`
	About      map[string]any `json:"about,omitempty"` // the process that made the bundle
}

func (b *bundler) environment() environment {
	c := b.r.core
	o := &c.opts
	e := environment{Perdure: "unknown", Version: c.version, Go: runtime.Version(), OS: runtime.GOOS, Arch: runtime.GOARCH, CPUs: runtime.NumCPU(), Format: journal.Format, Made: b.now.UTC(),
		Durability: store.DurabilityOf(c.threads.Store).String(), About: b.o.About, Options: map[string]any{
			"concurrency": o.Concurrency, "lease": o.Lease.String(), "grace": o.Grace.String(), "dump_interval": o.DumpInterval.String(), "max_queue": o.MaxQueue,
			"trusted_keys": len(o.Trust), "development": o.Development, "validator": o.Validator != nil, "observer": o.Observer != nil, "logger": o.Logger != nil}}
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, m := range append([]*debug.Module{&info.Main}, info.Deps...) {
			if m.Path == "github.com/perdure/perdure" {
				e.Perdure = m.Version
			}
		}
	}
	for s := c.threads.Store; s != nil; {
		e.Store = append(e.Store, fmt.Sprintf("%T", s))
		w, ok := s.(store.Wrapper)
		if !ok {
			break
		}
		s = w.Unwrap()
	}
	for _, name := range b.r.Flows() {
		e.Flows = append(e.Flows, b.alias("f", name))
	}
	return e
}

func (b *bundler) workers(ctx context.Context, w io.Writer) error {
	all, err := b.r.Workers(ctx)
	if err != nil {
		return err
	}
	for i := range all {
		if !b.o.Hosts {
			all[i].Host = ""
		}
		for j, name := range all[i].Flows {
			all[i].Flows[j] = b.alias("f", name)
		}
	}
	return indent(w, all)
}

// shape is an entry of a journal without its content.
type shape struct {
	Seq      uint64           `json:"seq"`
	Kind     string           `json:"kind"`
	Time     time.Time        `json:"time"`
	Run      uint64           `json:"run,omitempty"` // the sequence of the entry that queued it
	Epoch    uint64           `json:"epoch,omitempty"`
	Path     string           `json:"path,omitempty"`
	Size     int              `json:"size"`           // of its content in bytes
	Sum      string           `json:"sum"`            // equal for equal contents in this file; says nothing about them
	Hash     string           `json:"hash"`           // in the audit chain
	Blob     int64            `json:"blob,omitempty"` // size of its value, if that is large
	Attempt  int              `json:"attempt,omitempty"`
	Attempts int              `json:"attempts,omitempty"`
	TookUS   int64            `json:"took_us,omitempty"`
	Due      time.Time        `json:"due,omitzero"`
	Status   string           `json:"status,omitempty"`
	Worker   string           `json:"worker,omitempty"`
	Version  string           `json:"version,omitempty"`
	Codes    []string         `json:"codes,omitempty"`
	Message  int              `json:"message,omitempty"` // length of the text of its error
	Stack    string           `json:"stack,omitempty"`
	Changes  int              `json:"changes,omitempty"` // of the state
	Spend    map[string]int64 `json:"spend,omitempty"`
}

func (b *bundler) journal(ctx context.Context, w io.Writer) error {
	enc := json.NewEncoder(w)
	for line, err := range b.r.core.threads.Entries(ctx, b.name, 0, b.m.Seq) {
		if err != nil {
			return err
		}
		e, err := journal.Peek(line.Seq, line.Data)
		if err != nil {
			return fmt.Errorf("%w: entry %d: %w", fault.ErrCorrupt, line.Seq, err)
		}
		sum := hmac.New(sha256.New, b.key)
		sum.Write(e.Body)
		s := shape{Seq: e.Seq, Kind: string(e.Kind), Time: clock.Stamp(e.Time), Run: e.Run, Epoch: e.Epoch, Path: b.path(tree.Names(e.Path)),
			Size: len(e.Body), Sum: hex.EncodeToString(sum.Sum(nil)[:8]), Hash: e.Hash.String()}
		if !e.Kind.Known() {
			s.Kind = "unknown"
		} else if body, err := e.Read(); err == nil {
			b.shape(&s, &body)
		}
		if err := enc.Encode(s); err != nil {
			return err
		}
	}
	return nil
}

func (b *bundler) shape(s *shape, body *journal.Body) {
	s.Attempt, s.Attempts, s.TookUS, s.Due, s.Worker, s.Version = body.Attempt, body.Most, body.Took, clock.Stamp(body.Due), body.Worker, body.Version
	s.Changes, s.Spend = len(body.State), b.amounts(body.Spend)
	if status := Status(body.Status); status.Final() {
		s.Status = body.Status
	}
	if body.Value.Blob != nil {
		s.Blob = body.Value.Blob.Size
	}
	if f := body.Fail; f != nil {
		s.Codes, s.Message, s.Stack = b.codes(f.Codes), len(f.Msg), b.stack(f.Stack)
	}
}

// log writes the lines about the thread that this process has logged. The same id may be
// that of another tenant's thread: the name in the store and the ids of runs tell.
func (b *bundler) log(ctx context.Context, w io.Writer) error {
	mine := map[[2]string]bool{{"thread", b.name}: true, {"run", b.m.Run}: true}
	if o, _ := b.r.core.threads.Read(ctx, b.name); o != nil { // what can be read of it
		for _, run := range o.Thread.Runs {
			mine[[2]string{"run", run.ID}] = true
		}
	}
	enc := json.NewEncoder(w)
	for _, line := range b.r.core.book.Lines() {
		if !slices.ContainsFunc(line.Attrs, func(a [2]string) bool { return mine[a] }) {
			continue
		}
		line.Attrs = slices.Clone(line.Attrs) // the book keeps its own
		for i, a := range line.Attrs {
			line.Attrs[i][1] = b.logged(a[0], a[1])
		}
		if err := enc.Encode(line); err != nil {
			return err
		}
	}
	return nil
}

// logged returns what stands for the value of an attribute.
func (b *bundler) logged(name, value string) string {
	switch name {
	case "thread":
		return b.thread(b.m.Thread)
	case "path":
		return b.path(value)
	case "run", "attempt", "of", "next", "deaths":
		return value
	}
	return b.text(value)
}

func (b *bundler) readme() string {
	var s strings.Builder
	fmt.Fprintf(&s, `This file is about run %s, whose status is %s. Perdure made it at %s.

postmortem.json   why the run went wrong, who ran it, what it used, what may have happened outside
environment.json  versions, kind of store, options; no addresses, paths, passwords or keys
workers.json      the workers that are alive
journal.jsonl     every entry of the thread without its content: kind, time, size, chain
log.jsonl         warnings about the thread that the runtime which made this file has logged
                  lately, such as failed attempts; that runs began and ended is in journal.jsonl
`, b.m.Run, b.m.Status, b.now.UTC().Format(time.RFC3339))
	if b.o.Contents {
		s.WriteString(`export.jsonl      the thread with all contents; check it with: perdure verify export.jsonl

THIS FILE HAS CONTENTS: inputs, outputs, messages, users, texts of errors. Whoever made
it asked for that. Treat it as you treat the data of your users.
`)
		return s.String()
	}
	s.WriteString(`
It has no contents: no inputs, outputs, messages, states, files, titles, users,
metadata, texts of errors, answers, ids of threads or secrets. Where such a text was,
there is its size. The sums in journal.jsonl are keyed with a random key that nobody
has: equal sums are equal contents, and that is all they say. Stacks have functions and
lines of code, without arguments and folders.
`)
	if !b.o.Names {
		s.WriteString("\nNames of flows, steps, signals, units and codes of the program are replaced: the same\nname by the same letter and number.\n")
	}
	if !b.o.Hosts {
		s.WriteString("\nThe names of machines are left out.\n")
	}
	return s.String()
}

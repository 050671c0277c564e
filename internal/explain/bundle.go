package explain

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
	"github.com/perdure/perdure/internal/journal"
	"github.com/perdure/perdure/internal/logbook"
	"github.com/perdure/perdure/internal/threads"
	"github.com/perdure/perdure/internal/tree"
	"github.com/perdure/perdure/internal/worker"
	"github.com/perdure/perdure/store"
)

// BundleOptions say what a bundle holds: see perdure.BundleOptions.
type BundleOptions struct {
	Names, Hosts, Contents bool
	About                  map[string]any
}

// Bundle is what a bundle for support is made from.
type Bundle struct {
	Threads           *threads.Threads
	Name, Thread, Run string // the thread's name in the store, its id, and the id of the run
	Status            journal.Status
	Seq               uint64           // the last entry
	PostMortem        func(*Names) any // without what the names replace
	Workers           func(context.Context) ([]worker.Info, error)
	Export            func(ctx context.Context, thread string, w io.Writer, redact bool) error
	Book              *logbook.Book
	Version           string         // of the code
	Flows             []string       // of the runtime
	Options           map[string]any // of the runtime
}

// bundler writes one bundle.
type bundler struct {
	from  *Bundle
	zip   *zip.Writer
	o     BundleOptions
	names *Names
	key   []byte // of the sums, thrown away afterwards
	now   time.Time
}

// Write writes a bundle as a zip file.
func (s *Bundle) Write(ctx context.Context, w io.Writer, o BundleOptions) error {
	b := &bundler{from: s, zip: zip.NewWriter(w), o: o, names: &Names{opts: o, known: map[string]string{}}, key: make([]byte, 32), now: clock.Now()}
	rand.Read(b.key)
	files := []struct {
		name  string
		write func(io.Writer) error
	}{
		{"README.txt", func(w io.Writer) error { _, err := io.WriteString(w, b.readme()); return err }},
		{"postmortem.json", func(w io.Writer) error { return indent(w, b.from.PostMortem(b.names)) }},
		{"environment.json", func(w io.Writer) error { return indent(w, b.environment()) }},
		{"workers.json", func(w io.Writer) error { return b.workers(ctx, w) }},
		{"journal.jsonl", func(w io.Writer) error { return b.journal(ctx, w) }},
		{"log.jsonl", func(w io.Writer) error { return b.log(ctx, w) }},
		{"export.jsonl", func(w io.Writer) error { return b.from.Export(ctx, b.from.Thread, w, false) }},
	}
	if !o.Contents {
		files = files[:len(files)-1]
	}
	for _, f := range files {
		out, err := b.zip.CreateHeader(&zip.FileHeader{Name: f.name, Method: zip.Deflate, Modified: b.now})
		if err == nil {
			err = f.write(out)
		}
		if err != nil {
			return fmt.Errorf("perdure: the bundle of run %s: %s: %w", b.from.Run, f.name, err)
		}
	}
	return b.zip.Close()
}

func indent(w io.Writer, v any) error {
	enc := json.NewEncoder(w)
	enc.SetIndent("", "  ")
	return enc.Encode(v)
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
	e := environment{Perdure: "unknown", Version: b.from.Version, Go: runtime.Version(), OS: runtime.GOOS, Arch: runtime.GOARCH, CPUs: runtime.NumCPU(), Format: journal.Format, Made: b.now.UTC(),
		Durability: store.DurabilityOf(b.from.Threads.Store).String(), About: b.o.About, Options: b.from.Options}
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, m := range append([]*debug.Module{&info.Main}, info.Deps...) {
			if m.Path == "github.com/perdure/perdure" {
				e.Perdure = m.Version
			}
		}
	}
	for s := b.from.Threads.Store; s != nil; {
		e.Store = append(e.Store, fmt.Sprintf("%T", s))
		w, ok := s.(store.Wrapper)
		if !ok {
			break
		}
		s = w.Unwrap()
	}
	for _, name := range b.from.Flows {
		e.Flows = append(e.Flows, b.names.Alias("f", name))
	}
	return e
}

func (b *bundler) workers(ctx context.Context, w io.Writer) error {
	all, err := b.from.Workers(ctx)
	if err != nil {
		return err
	}
	for i := range all {
		if !b.o.Hosts {
			all[i].Host = ""
		}
		for j, name := range all[i].Flows {
			all[i].Flows[j] = b.names.Alias("f", name)
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
	for e, err := range b.from.Threads.Peek(ctx, b.from.Name, 0, b.from.Seq) {
		if err != nil {
			return err
		}
		sum := hmac.New(sha256.New, b.key)
		sum.Write(e.Body)
		s := shape{Seq: e.Seq, Kind: string(e.Kind), Time: clock.Stamp(e.Time), Run: e.Run, Epoch: e.Epoch, Path: b.names.Path(tree.Names(e.Path)),
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
	s.Changes, s.Spend = len(body.State), b.names.Amounts(body.Spend)
	if journal.Status(body.Status).Final() {
		s.Status = body.Status
	}
	if body.Value.Blob != nil {
		s.Blob = body.Value.Blob.Size
	}
	if f := body.Fail; f != nil {
		s.Codes, s.Message, s.Stack = b.names.Codes(f.Codes), len(f.Msg), b.names.Stack(f.Stack)
	}
}

// log writes the lines about the thread that this process has logged. The same id may be
// that of another tenant's thread: the name in the store and the ids of runs tell.
func (b *bundler) log(ctx context.Context, w io.Writer) error {
	mine := map[[2]string]bool{{"thread", b.from.Name}: true, {"run", b.from.Run}: true}
	if o, _ := b.from.Threads.Read(ctx, b.from.Name); o != nil { // what can be read of it
		for _, run := range o.Thread.Runs {
			mine[[2]string{"run", run.ID}] = true
		}
	}
	enc := json.NewEncoder(w)
	for _, line := range b.from.Book.Lines() {
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
		return b.names.Thread(b.from.Thread)
	case "path":
		return b.names.Path(value)
	case "run", "attempt", "of", "next", "deaths":
		return value
	}
	return b.names.Text(value)
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
`, b.from.Run, b.from.Status, b.now.UTC().Format(time.RFC3339))
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

// Names replaces what a bundle must not have, the same by the same.
type Names struct {
	opts  BundleOptions
	known map[string]string // what stands for the names seen so far
}

// Alias returns what stands for a name: the name itself if names are wanted.
func (n *Names) Alias(kind, name string) string {
	if name == "" || n.opts.Names || n.opts.Contents {
		return name
	}
	return n.standIn(kind, name)
}

func (n *Names) standIn(kind, name string) string {
	if n.known[kind+name] == "" {
		n.known[kind+name] = fmt.Sprint(kind, len(n.known)+1)
	}
	return n.known[kind+name]
}

// Path returns what stands for a path.
func (n *Names) Path(path string) string {
	parts := strings.Split(path, "/")
	for i := range parts {
		parts[i] = n.Alias("n", parts[i])
	}
	return strings.Join(parts, "/")
}

// Text returns what stands for a text that anyone may have written.
func (n *Names) Text(s string) string {
	if s == "" || n.opts.Contents {
		return s
	}
	return fmt.Sprintf("(%d bytes)", len(s))
}

// Thread returns what stands for the id of a thread.
func (n *Names) Thread(id string) string {
	if n.opts.Contents {
		return id
	}
	return n.standIn("t", id)
}

// Amounts returns amounts by what stands for their units.
func (n *Names) Amounts(by map[string]int64) map[string]int64 {
	if by == nil {
		return nil
	}
	all := map[string]int64{}
	for unit, amount := range by {
		all[n.Alias("u", unit)] = amount
	}
	return all
}

// ownCodes are the codes of errors that packages of this module define.
var ownCodes = []string{"composite", "cancelled", "failed-fast", "timeout", "expired", "budget", "panic", "not-json", "option", "dep",
	"unknown-outcome", "child", "child-cancelled", "too-large", "erased", "archived", "restored", "permanent", "poison",
	"llm-failed", "llm-refused", "llm-too-long", "agent-limit", "agent-mistakes", "agent-rejected", "agent-fatal", "agent-option", "agent-rule", "agent-no-rule",
	"agent-credential", "agent-no-credential", "agent-unsealed", "agent-unopened", "agent-no-file", "agent-path", "agent-not-text", "agent-no-memory", "agent-memory-conflict", "agent-namespace",
	"mcp-option", "mcp-unreachable", "mcp-refused", "mcp-failed", "mcp-lost", "mcp-list", "mcp-closed"}

// Codes returns what stands for the codes of an error.
func (n *Names) Codes(codes []string) (kept []string) {
	for _, c := range codes {
		if !slices.Contains(ownCodes, c) {
			c = n.Alias("c", c)
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

// Stack returns the functions and places of a stack.
func (n *Names) Stack(s string) string {
	if n.opts.Contents {
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

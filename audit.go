package perdure

import (
	"context"
	"io"

	"github.com/perdure/perdure/internal/archive"
)

// Verification is the result of checking a thread or an export.
type Verification struct {
	Thread   string `json:"thread"`
	Tenant   string `json:"tenant,omitempty"`
	Entries  uint64 `json:"entries"`            // that are there, also those behind the damage
	Good     uint64 `json:"good"`               // the last one that is good, and so are all before it
	Head     string `json:"head"`               // the hash of that one, which stands for all up to it
	Blobs    int    `json:"blobs"`              // that were checked: the large values of the good entries
	Bytes    int64  `json:"bytes"`              // of the good entries and their blobs
	Redacted bool   `json:"redacted,omitempty"` // of an export: it holds hashes in place of what entries say
	Signer   string `json:"signer,omitempty"`   // of an export: the public key by which it is signed, see [Runtime.ExportKey]; "": it is not
	Problem  string `json:"problem,omitempty"`  // the first thing that is wrong, and where; "" if all is good
}

// OK reports whether everything is intact.
func (v *Verification) OK() bool { return v.Problem == "" }

// Verify reads a thread from its first entry and checks all of it: that each
// entry is as it was written and where it was written, that it makes sense after
// the preceding ones, and that each large value that it refers to exists and has
// its hash. Damage is not an error: the result says what is wrong and up to where
// the thread is intact. A fork at Good continues from there.
//
// A missing tail is found if the store reports it, or if the thread's summary has
// seen it. An attacker who can rewrite the whole journal, with all its hashes, is
// detected by comparing Head with one that was kept elsewhere.
func (r *Runtime) Verify(ctx context.Context, thread string) (*Verification, error) {
	v, err := r.archive().Verify(ctx, thread)
	return (*Verification)(v), err
}

// ExportKey returns the public key of the store's signatures on exports, for the
// [ImportOptions] and [Options] of others that trust it.
func (r *Runtime) ExportKey(ctx context.Context) (string, error) {
	return r.archive().ExportKey(ctx)
}

// ExportOptions say what an export holds.
type ExportOptions struct {
	// Redact leaves out what entries say, and large values. What stays: the
	// thread's id and tenant, and of each entry its kind, time, run, path and
	// the SHA-256 of what it says. It can be verified, but neither imported nor
	// replayed. Anyone who guesses what a short entry says can confirm the guess
	// with the hash.
	Redact bool
}

// Export writes a thread as one file of JSON lines: see docs/export.md. It
// holds the entries up to now, byte by byte, and all large values that they
// refer to; that of a fork also what it shares with its parent. [VerifyExport]
// checks it without a store, Import makes a thread of it, and [Replay] runs
// today's code against it. It is signed by the key of the store.
//
// It streams. After an error the file is incomplete, which VerifyExport detects.
// A damaged thread is ErrCorrupt: export a fork of its intact part.
func (r *Runtime) Export(ctx context.Context, thread string, w io.Writer, o ExportOptions) error {
	return r.archive().Export(ctx, thread, w, o.Redact)
}

// VerifyExport checks an export without a store: that no line of it is changed,
// missing, doubled or out of place, that the entries are chained, and that each
// large value exists and has its hash. Damage is not an error: the result says
// what is wrong and where. An error means that rd could not be read.
//
// It holds one line and the folded thread in memory. That entries make sense after
// the preceding ones is checked up to the first rewind; Import checks all of it.
// The last line reveals a file that was cut or damaged; an attacker who can
// rewrite the whole file is detected by comparing Head with one that was kept
// elsewhere.
func VerifyExport(rd io.Reader) (*Verification, error) {
	v, err := archive.Read(context.Background(), rd, archive.Taker{})
	return (*Verification)(v), err
}

// ImportOptions say what becomes of an export.
type ImportOptions struct {
	As    string   // the id of the new thread; "": the one that it had
	Trust []string // public keys, see [Runtime.ExportKey], by which the file may be signed, beside the store's own and those in Options
}

// Import creates a thread from an export and returns its id. The entries keep their
// exact bytes and their chain; an entry after them says where they come from. The
// thread is like a fork: active runs are paused, so that nothing continues here
// before Resume, unfinished children are spawned again, and Keys are new.
//
// Whoever writes a file can make up what people have decided, and its hashes. So
// answers are void as in a fork, open asks are asked again, and the thread is
// marked as imported forever, unless a key that is trusted here signed the file:
// this store's own or one in Options, for a thread of the same tenant, or one in
// ImportOptions.
//
// The whole file is checked while it is read, and the thread is not visible before
// it is complete: damage is ErrCorrupt, and the partial import is dropped. An id
// that is taken is ErrExists. A redacted export is ErrInvalid.
func (r *Runtime) Import(ctx context.Context, rd io.Reader, o ImportOptions) (string, error) {
	return r.archive().Import(ctx, rd, o.As, o.Trust)
}

func (r *Runtime) archive() *archive.Archive { return archive.New(r.tenant, r.core.opts.Trust) }

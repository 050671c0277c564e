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
	Entries  uint64 `json:"entries"`            // all that exist, including those after the damage
	Good     uint64 `json:"good"`               // the last intact entry; all before it are intact too
	Head     string `json:"head"`               // the hash of that entry, which covers all up to it
	Blobs    int    `json:"blobs"`              // how many large values of the intact entries were checked
	Bytes    int64  `json:"bytes"`              // of the intact entries and their blobs
	Redacted bool   `json:"redacted,omitempty"` // the export holds hashes instead of the contents of entries
	Signer   string `json:"signer,omitempty"`   // the public key that signed the export, see [Runtime.ExportKey]; "" if none did
	Problem  string `json:"problem,omitempty"`  // the first thing that is wrong, and where; "" if everything is intact
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

// ExportKey returns the public key with which to check the store's signatures on
// exports. Others who trust it put it into their [ImportOptions] or [Options].
func (r *Runtime) ExportKey(ctx context.Context) (string, error) {
	return r.archive().ExportKey(ctx)
}

// ExportOptions configures an export.
type ExportOptions struct {
	// Redact omits the contents of entries, and large values. What remains is
	// the thread's id and tenant, and the kind, time, run and path of each entry
	// with the SHA-256 of its content. The export can be verified, but neither
	// imported nor replayed. Anyone who guesses the content of a short entry can
	// confirm the guess with the hash.
	Redact bool
}

// Export writes a thread as one file of JSON lines: see docs/export.md. The file
// holds the entries up to now, byte for byte, and all large values that they refer
// to; for a fork, also those that it shares with its parent. [VerifyExport] checks
// it without a store, Import creates a thread from it, and [Replay] runs today's
// code against it. It is signed with the store's key.
//
// Export streams. After an error the file is incomplete, which VerifyExport
// detects. A damaged thread is ErrCorrupt: export a fork of its intact part.
func (r *Runtime) Export(ctx context.Context, thread string, w io.Writer, o ExportOptions) error {
	return r.archive().Export(ctx, thread, w, o.Redact)
}

// VerifyExport checks an export without a store: that no line of it is changed,
// missing, duplicated or out of place, that the entries are chained, and that each
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

// ImportOptions configures an import.
type ImportOptions struct {
	As    string   // the id of the new thread; "" keeps its original id
	Trust []string // public keys, see [Runtime.ExportKey], that may sign the file, besides the store's own and those in Options
}

// Import creates a thread from an export and returns its id. The entries keep their
// exact bytes and their chain; an entry after them says where they come from. The
// thread is like a fork: active runs are paused, so that nothing continues here
// before Resume, unfinished children are spawned again, and Keys are new.
//
// Anyone who writes a file can forge what people decided, and the hashes. So
// answers are void as in a fork, open asks are asked again, and the thread is
// marked as imported forever, unless the file is signed by a key that is trusted
// here: this store's own or one in Options, for a thread of the same tenant, or
// one in ImportOptions.
//
// The whole file is checked while it is read, and the thread is not visible before
// it is complete: damage is ErrCorrupt, and the partial import is dropped. An id
// that is taken is ErrExists. A redacted export is ErrInvalid.
func (r *Runtime) Import(ctx context.Context, rd io.Reader, o ImportOptions) (string, error) {
	return r.archive().Import(ctx, rd, o.As, o.Trust)
}

func (r *Runtime) archive() *archive.Archive { return archive.New(r.tenant, r.core.opts.Trust) }

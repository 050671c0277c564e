package perdure

import (
	"context"
	"io"
)

// ExportOptions say what an export holds.
type ExportOptions struct {
	// Redact leaves out what entries say, and large values. What stays: the
	// thread's id and tenant, and of each entry its kind, time, run, path and
	// the SHA-256 of what it says. It can be verified, but neither imported nor
	// replayed. Who guesses what a short entry says can tell by the hash that
	// the guess is right.
	Redact bool
}

// Export writes a thread as one file of JSON lines: see docs/export.md. It
// holds the entries up to now, byte by byte, and all large values that they
// refer to; that of a fork also what it shares with its parent. [VerifyExport]
// checks it without a store, Import makes a thread of it, and [Replay] runs
// today's code against it. It is signed by the key of the store.
//
// It streams. After an error the file is not whole, which VerifyExport finds.
// A damaged thread is ErrCorrupt: export a fork of its good part.
func (r *Runtime) Export(ctx context.Context, thread string, w io.Writer, o ExportOptions) error {
	return r.archive().Export(ctx, thread, w, o.Redact)
}

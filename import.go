package perdure

import (
	"context"
	"io"

	"github.com/perdure/perdure/internal/archive"
)

// ImportOptions say what becomes of an export.
type ImportOptions struct {
	As    string   // the id of the new thread; "": the one that it had
	Trust []string // public keys, see [Runtime.ExportKey], by which the file may be signed, beside the store's own and those in Options
}

// Import makes a thread of an export and returns its id. The entries keep their
// exact bytes and their chain; behind them stands an entry which says where
// they come from. The thread is as a fork is: runs that were active are paused,
// so that nothing goes on here before Resume, children that were not finished are
// spawned anew, and Keys are others.
//
// Whoever writes a file can make up what people have decided, and its hashes. So
// answers are void as they are in a fork, open asks are asked anew, and the
// thread is shown as imported for ever, unless the file is signed by a key that
// is trusted here: that of this store, or one in Options, for a thread of the
// same tenant, or one in ImportOptions.
//
// The whole file is checked on the way, and nothing of the thread is seen
// before all of it is there: damage is ErrCorrupt, and what was written is
// dropped. An id that is taken is ErrExists. A redacted export is ErrInvalid.
func (r *Runtime) Import(ctx context.Context, rd io.Reader, o ImportOptions) (string, error) {
	return r.archive().Import(ctx, rd, o.As, o.Trust)
}

// archive returns the archive of the tenant's threads.
func (r *Runtime) archive() *archive.Archive { return archive.New(r.tenant, r.opts.Trust) }

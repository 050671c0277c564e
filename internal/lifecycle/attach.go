package lifecycle

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/journal"
	"github.com/perdure/perdure/internal/threads"
)

// MaxAttached is how many files one input, answer or signal may have.
const MaxAttached = 32

// attached are the files of an input, an answer or a signal.
type attached struct {
	blobs   []journal.Blob
	missing error // an upload that is gone: no matter if the request was made before
}

// same reports whether these, of which there are n, may be the files of an earlier
// request. An upload that is gone may have been any file.
func (a attached) same(n int, old []journal.Blob) bool {
	return n == len(old) && (a.missing != nil || slices.EqualFunc(a.blobs, old, func(x, y journal.Blob) bool { return x.Sum == y.Sum }))
}

// attach copies uploads to a thread, for an entry that names them. It comes
// before the entry, so an entry never names a file that is not there.
func (r *Control) attach(ctx context.Context, name string, uploads []string) (files attached, err error) {
	if err := checkAttached(uploads); err != nil {
		return files, err
	}
	for _, id := range uploads {
		b, err := r.tenant.CopyUpload(ctx, id, name)
		if errors.Is(err, fault.ErrNoUpload) {
			files.missing = err
			return files, nil
		}
		if err != nil {
			return files, err
		}
		files.blobs = append(files.blobs, b)
	}
	return files, nil
}

func checkAttached(uploads []string) error {
	if len(uploads) > MaxAttached {
		return fmt.Errorf("%w: there are %d files; the limit is %d", fault.ErrInvalid, len(uploads), MaxAttached)
	}
	return nil
}

// admit asks whether a start may add to its tenant, with the uploads that it attaches.
// Those that are gone add nothing.
func (r *Control) admit(ctx context.Context, g threads.Growth, uploads []string) error {
	if threads.Guarded(ctx) {
		if err := checkAttached(uploads); err != nil {
			return err
		}
		for _, id := range uploads {
			u, err := r.tenant.FindUpload(ctx, id)
			if errors.Is(err, fault.ErrNoUpload) {
				continue
			}
			if err != nil {
				return err
			}
			g.Bytes += u.File.Ref.Size
		}
	}
	return threads.Admit(ctx, g)
}

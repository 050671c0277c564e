package engine

import (
	"context"

	"github.com/perdure/perdure/internal/journal"
)

// Attached returns the file with a digest that the thread was given, and whether
// there is one. Unlike the state, files are the same for all runs: what a digest
// stands for does not change, and it arrives before whatever names it.
func Attached(ctx context.Context, sum string) (journal.Blob, bool, error) {
	f, err := inside(ctx)
	if err != nil {
		return journal.Blob{}, false, err
	}
	f.pass.mu.Lock()
	defer f.pass.mu.Unlock()
	file, ok := f.pass.thread.Blobs[sum]
	return file, ok, nil
}

// ReadAttached returns the bytes of a file that the thread was given.
func ReadAttached(ctx context.Context, sum string) ([]byte, bool, error) {
	f, err := inside(ctx)
	if err != nil {
		return nil, false, err
	}
	file, ok, err := Attached(ctx, sum)
	if err != nil || !ok {
		return nil, false, err
	}
	data, err := patient(f.pass, f, func() ([]byte, error) { return f.pass.engine.threads.LoadBlob(f.pass.io, f.pass.name, file) })
	return data, err == nil, err
}

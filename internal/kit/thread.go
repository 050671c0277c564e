package kit

import (
	"bytes"
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/perdure/perdure"
)

// MustExport returns the export of a thread.
func (k *Kit) MustExport(thread string, o perdure.ExportOptions) []byte {
	k.T.Helper()
	var buf bytes.Buffer
	NoErr(k.T, k.Export(k.T.Context(), thread, &buf, o))
	return buf.Bytes()
}

// MustVerify expects a thread to be good.
func (k *Kit) MustVerify(thread string) *perdure.Verification {
	k.T.Helper()
	v := must(k.Verify(k.T.Context(), thread))(k.T)
	if !v.OK() {
		k.T.Fatalf("thread %s: %s", thread, v.Problem)
	}
	return v
}

// VerifyFile verifies an export.
func VerifyFile(t *testing.T, file []byte) *perdure.Verification {
	t.Helper()
	return must(perdure.VerifyExport(bytes.NewReader(file)))(t)
}

// MustImport imports a file, which has to work.
func (k *Kit) MustImport(file []byte, as string) {
	k.T.Helper()
	id := must(k.Import(k.T.Context(), bytes.NewReader(file), perdure.ImportOptions{As: as}))(k.T)
	if as != "" && id != as {
		k.T.Errorf("the new thread is called %q, not %q", id, as)
	}
}

// ExportedEntries returns the lines of an export that are entries.
func ExportedEntries(file []byte) [][]byte {
	var list [][]byte
	for line := range bytes.Lines(file) {
		if bytes.HasPrefix(line, []byte(`{"v":`)) {
			list = append(list, line)
		}
	}
	return list
}

// MustFork forks a thread.
func (k *Kit) MustFork(q perdure.ForkRequest) *perdure.Fork {
	k.T.Helper()
	return must(k.Fork(k.T.Context(), q))(k.T)
}

// MustStateAt returns a thread as it was.
func (k *Kit) MustStateAt(thread string, seq uint64) *perdure.Checkpoint {
	k.T.Helper()
	return must(k.StateAt(k.T.Context(), thread, seq))(k.T)
}

// Control makes one of the calls that a person makes on a run.
func (k *Kit) Control(name, thread, run string) error {
	calls := map[string]func(context.Context, string, string, perdure.Note) error{"pause": k.Pause, "resume": k.Resume, "retry": k.Retry, "cancel": k.Cancel}
	return calls[name](k.T.Context(), thread, run, perdure.Note{By: "ann", Reason: "test"})
}

// MustSignal sends a signal to a thread.
func (k *Kit) MustSignal(thread, name string, v any, key string) {
	k.T.Helper()
	NoErr(k.T, k.Signal(k.T.Context(), thread, name, v, perdure.SignalOptions{Key: key}))
}

// SeqOf returns the last sequence of a thread.
func (k *Kit) SeqOf(thread string) uint64 {
	k.T.Helper()
	return must(k.Get(k.T.Context(), thread))(k.T).Seq
}

// MustRebuild calls Rebuild, and expects no error.
func (k *Kit) MustRebuild() perdure.Rebuilt {
	k.T.Helper()
	return *must(k.Rebuild(k.T.Context()))(k.T)
}

// MustRewind takes a thread back to a sequence.
func (k *Kit) MustRewind(thread string, to uint64) *perdure.Rewound {
	k.T.Helper()
	return must(k.Rewind(k.T.Context(), thread, to, perdure.Note{By: "ann", Reason: "wrong"}))(k.T)
}

// Rest lets the workers get done what they can do by themselves.
func (k *Kit) Rest() {
	time.Sleep(5 * time.Second) // of virtual time
	synctest.Wait()
}

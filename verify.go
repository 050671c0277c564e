package perdure

import (
	"context"
)

// Verification is what came of checking a thread or an export of one.
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

// OK reports whether all is good.
func (v *Verification) OK() bool { return v.Problem == "" }

// Verify reads a thread from its first entry and checks all of it: that each
// entry is as it was written and stands where it was written, that it makes
// sense behind those before it, and that each large value that it refers to is
// there and has its hash. Damage is no error: the result says what is wrong and
// up to where the thread is good. Fork at Good goes on from there.
//
// A tail that is gone is found if the store says so, or if the thread's summary
// has seen it. Whoever can rewrite the whole journal, with all its hashes, is
// found out by comparing Head with one that was kept elsewhere.
func (r *Runtime) Verify(ctx context.Context, thread string) (*Verification, error) {
	v, err := r.archive().Verify(ctx, thread)
	return (*Verification)(v), err
}

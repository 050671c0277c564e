package journal

import (
	"maps"

	"github.com/perdure/perdure/internal/blob"
)

// Blob is a file that a thread was given: an image or a document that inputs,
// answers and signals refer to by its digest.
type Blob struct {
	Sum  string   `json:"sum"` // SHA-256 of its bytes, in lower-case hex
	Ref  blob.Ref `json:"ref"` // where the bytes are
	MIME string   `json:"mime,omitempty"`
	Name string   `json:"name,omitempty"` // of the file, as its sender calls it
}

// attach adds files to those of the thread. The first of equal files counts.
func (t *Thread) attach(files []Blob) {
	if len(files) == 0 {
		return
	}
	all := maps.Clone(t.Blobs)
	if all == nil {
		all = map[string]Blob{}
	}
	for _, f := range files {
		if _, there := all[f.Sum]; !there {
			all[f.Sum] = f
		}
	}
	t.Blobs = all
}

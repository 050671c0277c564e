package archive

import (
	"bufio"
	"bytes"
	"context"
	"crypto/ed25519"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"hash"
	"io"
	"slices"

	"github.com/perdure/perdure/internal/blob"
	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/journal"
	"github.com/perdure/perdure/internal/strict"
	"github.com/perdure/perdure/internal/threads"
	"github.com/perdure/perdure/store"
)

// exportFormat is the current format of exports. Files before signedFormat are
// not signed.
const exportFormat, signedFormat = 2, 2

// ExportHead is the first line of an export.
type ExportHead struct {
	Perdure  string `json:"perdure"` // "export"
	Format   int    `json:"v"`
	Thread   string `json:"thread"`
	Tenant   string `json:"tenant"`
	Name     string `json:"name,omitempty"` // in the store; idempotency keys derive from it
	User     string `json:"user,omitempty"` // its owner, for values that come before the first entry
	Entries  uint64 `json:"entries"`
	Head     string `json:"head"` // hash of the last entry
	Redacted bool   `json:"redacted"`
}

// exportBlob is the line before the chunks of a blob.
type exportBlob struct {
	Hash  string `json:"blob"`
	Size  int64  `json:"size"`
	Chunk int64  `json:"chunk"` // size of all chunks but the last
}

// exportEnd is the last line.
type exportEnd struct {
	End     string `json:"end"` // "export"
	Entries uint64 `json:"entries"`
	Blobs   int    `json:"blobs"`
	Sum     string `json:"sha256"`        // of all lines before it, with their line breaks
	Key     string `json:"key,omitempty"` // the public key of the store
	Sig     string `json:"sig,omitempty"` // its signature of the sum
}

// The beginning and end of a line with a blob's chunk.
const (
	chunkMark = `{"data":"`
	chunkTail = `"}`
)

// Export writes a thread as one file of JSON lines.
func (a *Archive) Export(ctx context.Context, thread string, w io.Writer, redact bool) error {
	opened, err := a.tenant.Open(ctx, thread)
	if err != nil {
		return err
	}
	t := opened.Thread
	switch {
	case t.Foreign != "":
		return fmt.Errorf("%w: thread %s: %s", fault.ErrNewer, thread, t.Foreign)
	case t.Erased:
		return fmt.Errorf("%w: %q", fault.ErrErased, thread)
	}
	if t.Moved != "" { // that it was is no part of what it is
		if t.Seq, t.Head, err = a.threads.EntryAt(ctx, opened.Name, t.Seq-1); err != nil {
			return err
		}
	}
	return a.ExportOpened(ctx, opened, w, redact)
}

// ExportOpened exports a thread as it was read.
func (a *Archive) ExportOpened(ctx context.Context, o *threads.Opened, w io.Writer, redact bool) error {
	key, err := a.signingKey(ctx)
	if err != nil {
		return err
	}
	t := o.Thread
	x := &exporter{key: key, threads: a.threads, name: o.Name, redact: redact, w: bufio.NewWriterSize(w, 64<<10), sum: sha256.New(), blobs: map[string]bool{}}
	head := ExportHead{Perdure: "export", Format: exportFormat, Thread: t.ID, Tenant: t.Tenant, Name: threads.Self(o.Name), User: t.User, Entries: t.Seq, Head: t.Head.String(), Redacted: redact}
	if redact {
		head.Name, head.User = "", ""
	}
	if err := x.write(ctx, head); err != nil {
		return fmt.Errorf("perdure: exporting thread %s after entry %d: %w", t.ID, x.seq, err)
	}
	return nil
}

// exporter writes one export.
type exporter struct {
	threads *threads.Threads
	key     ed25519.PrivateKey
	name    string
	redact  bool
	w       *bufio.Writer
	sum     hash.Hash
	blobs   map[string]bool // hashes of those written
	seq     uint64
	hash    journal.Hash
}

func (x *exporter) write(ctx context.Context, head ExportHead) error {
	if err := x.object(head); err != nil {
		return err
	}
	for line, err := range x.threads.Entries(ctx, x.name, 0, head.Entries) {
		if err != nil {
			return err
		}
		if err := x.entry(ctx, line); err != nil {
			return err
		}
	}
	if x.seq != head.Entries || x.hash.String() != head.Head {
		return fmt.Errorf("%w: it ends at entry %d with the hash %s, where a moment ago it ended at %d with %s", fault.ErrCorrupt, x.seq, x.hash, head.Entries, head.Head)
	}
	sum := sumText(x.sum)
	sig := base64.RawURLEncoding.EncodeToString(ed25519.Sign(x.key, signed(sum)))
	if err := x.object(exportEnd{End: "export", Entries: x.seq, Blobs: len(x.blobs), Sum: sum, Key: keyText(x.key), Sig: sig}); err != nil {
		return err
	}
	return x.w.Flush()
}

func sumText(h hash.Hash) string { return base64.RawURLEncoding.EncodeToString(h.Sum(nil)) }

// entry writes an entry, after the blobs that no earlier entry refers to.
func (x *exporter) entry(ctx context.Context, line store.Entry) error {
	e, err := journal.Decode(x.hash, line.Seq, line.Data)
	if err == nil && line.Seq != x.seq+1 {
		err = fmt.Errorf("it follows entry %d", x.seq)
	}
	if err == nil && bytes.IndexByte(line.Data, '\n') >= 0 {
		err = fmt.Errorf("it holds a line break")
	}
	if err != nil {
		return fmt.Errorf("%w: entry %d: %w", fault.ErrCorrupt, line.Seq, err)
	}
	x.seq, x.hash = e.Seq, e.Hash
	if x.redact {
		short, err := journal.Redact(line.Data)
		if err != nil {
			return fmt.Errorf("%w: entry %d: %w", fault.ErrCorrupt, line.Seq, err)
		}
		return x.line(short)
	}
	b, err := e.Read()
	if err != nil {
		return fmt.Errorf("%w: entry %d: %w", fault.ErrCorrupt, line.Seq, err)
	}
	for _, ref := range b.Refs() {
		if x.blobs[ref.Hash] {
			continue
		}
		x.blobs[ref.Hash] = true
		if err := x.blob(ctx, ref); err != nil {
			return fmt.Errorf("a value of entry %d: %w", line.Seq, err)
		}
	}
	return x.line(line.Data)
}

// blob writes a blob, chunk by chunk.
func (x *exporter) blob(ctx context.Context, ref blob.Ref) error {
	name := x.name
	if threads.IsFork(name) {
		var err error
		if name, err = x.threads.BlobHome(ctx, name, ref); err != nil {
			return err
		}
	}
	size, chunks, err := blob.Chunks(ctx, x.threads.Store, threads.BlobPrefix(name), ref)
	if err == nil {
		err = x.object(exportBlob{Hash: ref.Hash, Size: ref.Size, Chunk: size})
	}
	if err != nil {
		return err
	}
	var text []byte
	for chunk, err := range chunks {
		if err != nil {
			return err
		}
		text = append(text[:0], chunkMark...)
		text = base64.StdEncoding.AppendEncode(text, chunk)
		if err := x.line(append(text, chunkTail...)); err != nil {
			return err
		}
	}
	return nil
}

// object writes a line that is not an entry.
func (x *exporter) object(v any) error {
	raw, err := strict.Marshal(v)
	if err != nil {
		return err
	}
	return x.line(raw)
}

func (x *exporter) line(b []byte) error {
	x.sum.Write(b)
	x.sum.Write([]byte{'\n'})
	if _, err := x.w.Write(b); err != nil {
		return err
	}
	return x.w.WriteByte('\n')
}

// signCell holds the seed of the key with which a store signs its exports.
const signCell = "perdure/sign"

// signingKey returns the store's key, creating it on first use.
func (a *Archive) signingKey(ctx context.Context) (ed25519.PrivateKey, error) {
	seed, err := threads.Secret(ctx, a.threads.Store, signCell, ed25519.SeedSize)
	if err != nil {
		return nil, fmt.Errorf("perdure: the key of exports: %w", err)
	}
	return ed25519.NewKeyFromSeed(seed), nil
}

// ExportKey returns the public key that verifies exports of the store.
func (a *Archive) ExportKey(ctx context.Context) (string, error) {
	key, err := a.signingKey(ctx)
	if err != nil {
		return "", err
	}
	return keyText(key), nil
}

func keyText(key ed25519.PrivateKey) string {
	return base64.RawURLEncoding.EncodeToString(key.Public().(ed25519.PublicKey))
}

func readKey(text string) (ed25519.PublicKey, error) {
	raw, err := base64.RawURLEncoding.Strict().DecodeString(text)
	if err != nil || len(raw) != ed25519.PublicKeySize {
		return nil, fmt.Errorf("%w: %.60q is not a public key as perdure verify prints it", fault.ErrInvalid, text)
	}
	return raw, nil
}

// CheckKeys returns an error if a text is not a public key.
func CheckKeys(keys []string) error {
	for _, k := range keys {
		if _, err := readKey(k); err != nil {
			return err
		}
	}
	return nil
}

// signed returns the bytes that the signature of an export covers.
func signed(sum string) []byte { return []byte("perdure export\n" + sum) }

// checkSignature returns why the last line of an export is not signed by its key.
func (e exportEnd) checkSignature() error {
	key, err := readKey(e.Key)
	if err != nil {
		return err
	}
	sig, err := base64.RawURLEncoding.Strict().DecodeString(e.Sig)
	if err != nil || !ed25519.Verify(key, signed(e.Sum), sig) {
		return fmt.Errorf("the signature is not by the key %s", e.Key)
	}
	return nil
}

// trusts reports whether the decisions in an export with this signer count
// here. The store's own key and those in Options are trusted for threads of the
// same tenant.
func (im *importer) trusts(ctx context.Context, signer string) (bool, error) {
	if signer == "" {
		return false, nil
	}
	if slices.Contains(im.trust, signer) {
		return true, nil
	}
	own := ""
	cell, err := im.archive.threads.Store.Get(ctx, signCell)
	switch {
	case err == nil && len(cell.Value) == ed25519.SeedSize:
		own = keyText(ed25519.NewKeyFromSeed(cell.Value))
	case err != nil && !errors.Is(err, store.ErrNotFound):
		return false, err
	}
	return im.from == im.archive.tenant.Name && (signer == own || slices.Contains(im.archive.trust, signer)), nil
}

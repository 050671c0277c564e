package perdure

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/perdure/perdure/internal/clock"
	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/strict"
	"github.com/perdure/perdure/internal/threads"
)

// UploadRequest describes a file to upload.
type UploadRequest struct {
	Name   string // of the file; not a path
	MIME   string // its media type, such as image/png
	User   string // its owner
	SHA256 []byte // the digest that the bytes must have; nil accepts any
}

// Upload is a file that was uploaded and belongs to no thread yet.
type Upload struct {
	ID      string    `json:"id" jsonschema:"the id to list in attach"`
	Blob    string    `json:"blob" jsonschema:"SHA-256 of its bytes in hex; media refer to the file by it"`
	Size    int64     `json:"size" jsonschema:"its size in bytes"`
	MIME    string    `json:"mime,omitempty" jsonschema:"its media type"`
	Name    string    `json:"name,omitempty" jsonschema:"name of the file"`
	User    string    `json:"user,omitempty" jsonschema:"its owner"`
	Expires time.Time `json:"expires" jsonschema:"when it is removed; threads to which it was attached keep their copy"`
}

// Upload stores a file, so that an input, an answer or a signal can refer to it:
// their Attach names the upload, and an [github.com/perdure/perdure/llm.Media] in
// them has its Blob. Attaching it copies the file to the thread, with which it is
// forked, exported and erased. An upload expires after a day, attached or not, and
// can be attached to several threads until then.
//
// Upload holds only a part of the file in memory at a time. If it fails, nothing
// remains. A file can have up to 1 GiB.
func (r *Runtime) Upload(ctx context.Context, body io.Reader, q UploadRequest) (*Upload, error) {
	switch {
	case len(q.Name) > 255 || !strict.Seen(q.Name) || strings.ContainsAny(q.Name, `/\`):
		return nil, fmt.Errorf("%w: the name of a file is up to 255 bytes of text without slashes, not %.60q", fault.ErrInvalid, q.Name)
	case len(q.SHA256) != 0 && len(q.SHA256) != 32:
		return nil, fmt.Errorf("%w: a SHA-256 has 32 bytes, not %d", fault.ErrInvalid, len(q.SHA256))
	case !strict.Seen(q.User):
		return nil, fmt.Errorf("%w: the user of an upload must not contain control or invisible characters, as %.60q does", fault.ErrInvalid, q.User)
	}
	if err := errors.Join(fault.CheckText("the media type", q.MIME, 255), fault.CheckText("the user", q.User, 500)); err != nil {
		return nil, err
	}
	if len(q.SHA256) == 0 {
		q.SHA256 = nil
	}
	u, err := r.tenant.Receive(ctx, threads.Upload{User: q.User, Name: q.Name, MIME: q.MIME}, q.SHA256, body)
	if err != nil {
		return nil, err
	}
	return &Upload{ID: u.ID, Blob: u.File.Sum, Size: u.File.Ref.Size, MIME: u.MIME, Name: u.Name, User: u.User, Expires: clock.Stamp(u.Expires)}, nil
}

// DropUpload removes an upload before it expires. Threads that it was attached to
// keep their copy.
func (r *Runtime) DropUpload(ctx context.Context, id string) error {
	return r.tenant.DropUpload(ctx, id)
}

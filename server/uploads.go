package server

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"mime"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/api"
	"github.com/perdure/perdure/internal/threads"
	"github.com/perdure/perdure/store"
)

func (s *Server) uploadRoutes() {
	raw(s, api.UploadsCreate, s.createUpload)
	handle(s, api.UploadsDelete, func(ctx context.Context, c *Call, in *api.OneUpload) (*api.None, error) {
		return nil, c.Runtime.DropUpload(ctx, in.Upload)
	})
}

// The sizes of the largest upload in bytes: by default, and of any store.
const (
	defaultUpload = 64 << 20
	mostUpload    = 1 << 30
)

// createUpload streams a body into an upload. A chunk of it is in memory at a time.
func (s *Server) createUpload(w http.ResponseWriter, r *http.Request, c *Call, in *api.CreateUpload) error {
	if err := checkEncoding(r); err != nil {
		return err
	}
	media := api.TypeBytes
	if in.MIME != "" {
		var err error
		media, _, err = mime.ParseMediaType(in.MIME)
		if kind, of, ok := strings.Cut(media, "/"); err != nil || !ok || kind == "*" || of == "*" {
			return fmt.Errorf("%w: %.80q is not a media type", api.ErrMedia, in.MIME)
		} else if kind == "multipart" { // a form, whose envelope would become the file
			return fmt.Errorf("%w: %s; send the bytes of one file as the body: curl --data-binary @FILE -H 'Content-Type: image/png'", api.ErrMedia, media)
		}
	}
	digest, err := digestOf(in.Digest)
	if err != nil {
		return err
	}
	if r.ContentLength > s.opts.MaxUpload { // before any of it is read
		return badBody(&http.MaxBytesError{Limit: s.opts.MaxUpload})
	}
	room, done, err := s.quotas.reserve(r.Context(), c.Who.Tenant, r.ContentLength, s.opts.MaxUpload)
	if err != nil {
		return err
	}
	written := int64(0)
	settle := sync.OnceFunc(func() { done(written) })
	defer settle()
	if err := c.load.body(store.MaxEntry); err != nil {
		return err
	}
	body := &noted{Reader: http.MaxBytesReader(w, r.Body, room)}
	u, err := c.Runtime.Upload(r.Context(), body, perdure.UploadRequest{Name: in.Name, MIME: media, User: s.owner(c, in.User), SHA256: digest})
	if _, large := errors.AsType[*http.MaxBytesError](body.err); large && room < s.opts.MaxUpload {
		return s.quotas.overBytes(c.Who.Tenant)
	}
	switch {
	case body.err != nil:
		return badBody(body.err)
	case err != nil:
		return err
	}
	written = max(u.Size, threads.LeastUpload)
	settle() // before the response, after which the caller may send more
	return c.sendOrReceipt(w, api.UploadsCreate.Status, u)
}

// digestOf returns the SHA-256 in a header Content-Digest, nil without the header.
func digestOf(header string) ([]byte, error) {
	if header == "" {
		return nil, nil
	}
	for member := range strings.SplitSeq(header, ",") {
		text, ok := strings.CutPrefix(strings.TrimSpace(member), "sha-256=:")
		if !ok {
			continue
		}
		sum, err := base64.StdEncoding.DecodeString(strings.TrimSuffix(text, ":"))
		if err == nil && strings.HasSuffix(text, ":") && len(sum) == 32 {
			return sum, nil
		}
	}
	return nil, api.Invalid("header Content-Digest: it has to be sha-256=:BASE64:, with the 32 bytes of the digest")
}

// getBlob responds with untrusted bytes in a way that keeps browsers from
// interpreting them.
func (s *Server) getBlob(w http.ResponseWriter, r *http.Request, c *Call, in *api.GetBlob) error {
	tenant := threads.Behind(c.Runtime)
	o, err := tenant.Open(r.Context(), in.Thread)
	if err != nil {
		return err
	}
	if _, attached := o.Thread.Blobs[in.Hash]; !attached {
		return s.getStateBlob(w, r, c, in)
	}
	file, chunks, err := tenant.All.OpenBlob(r.Context(), o, in.Hash)
	if err == nil {
		err = c.load.hold(store.MaxEntry)
	}
	if err != nil {
		return err
	}
	sendBlob(w, file.MIME, file.Ref.Size)
	for chunk, err := range chunks {
		if err == nil {
			_, err = w.Write(chunk)
		} else if r.Context().Err() == nil {
			s.opts.Logger.Error("a file was cut off", "thread", in.Thread, "error", err)
		}
		if err != nil {
			panic(http.ErrAbortHandler)
		}
	}
	return nil
}

// sendBlob begins a response with untrusted bytes of a media type that a stranger
// has named.
func sendBlob(w http.ResponseWriter, media string, size int64) {
	media, _, err := mime.ParseMediaType(media)
	if err != nil || !slices.Contains(api.BlobTypes, media) {
		media = api.TypeBytes
	}
	h := w.Header()
	h.Set("Content-Type", media)
	h.Set("Content-Length", strconv.FormatInt(size, 10))
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Content-Disposition", "attachment")
	h.Set("Content-Security-Policy", "sandbox")
	h.Set("Cache-Control", "no-store")
	w.WriteHeader(http.StatusOK)
}

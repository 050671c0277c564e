package server

import (
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"strings"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/api"
)

// maxImport is the largest export that is taken, in bytes.
const maxImport = 1 << 30

// exportThread streams a thread as a file. If that fails when a part of it was
// sent, the connection is aborted: the file must not look whole.
func (s *Server) exportThread(w http.ResponseWriter, r *http.Request, c *Call, in *api.ExportThread) error {
	out := &late{w: w, begin: func(h http.Header) {
		h.Set("Content-Type", api.TypeLines)
		h.Set("Content-Disposition", mime.FormatMediaType("attachment", map[string]string{"filename": in.Thread + ".ndjson"}))
	}}
	err := c.Runtime.Export(r.Context(), in.Thread, out, perdure.ExportOptions{Redact: in.Redact})
	if err != nil && out.begun {
		if r.Context().Err() == nil {
			s.opts.Logger.Error("an export was cut off", "thread", in.Thread, "error", err)
		}
		panic(http.ErrAbortHandler)
	}
	return err
}

// late sets the headers of an answer when its first bytes are written, so that
// an error before that is told as one.
type late struct {
	w     http.ResponseWriter
	begin func(http.Header)
	begun bool
}

// Write writes a part of the answer.
func (l *late) Write(p []byte) (int, error) {
	if !l.begun {
		l.begun = true
		l.begin(l.w.Header())
	}
	return l.w.Write(p)
}

func (s *Server) importThread(w http.ResponseWriter, r *http.Request, c *Call, in *api.ImportThread) error {
	if err := checkMedia(r, api.TypeLines, api.TypeBytes); err != nil {
		return err
	}
	body := &noted{Reader: http.MaxBytesReader(w, r.Body, maxImport)}
	id, err := c.Runtime.Import(r.Context(), body, perdure.ImportOptions{As: in.As, Trust: keys(in.Trust)})
	var large *http.MaxBytesError
	switch {
	case errors.As(body.err, &large):
		return fmt.Errorf("%w: over %d bytes", api.ErrBodyTooLarge, large.Limit)
	case body.err != nil:
		return fmt.Errorf("%w: %v", api.ErrBody, body.err)
	case err != nil:
		return err
	}
	t, err := c.Runtime.Get(r.Context(), id)
	if err != nil {
		return err
	}
	c.made(t)
	return c.Send(w, api.ThreadsImport.Status, t)
}

// keys returns the keys of a list that is separated by commas.
func keys(list string) []string {
	if list == "" {
		return nil
	}
	return strings.Split(list, ",")
}

// noted is a reader that keeps its error, other than the end.
type noted struct {
	io.Reader
	err error
}

// Read reads on.
func (n *noted) Read(p []byte) (int, error) {
	got, err := n.Reader.Read(p)
	if err != nil && err != io.EOF {
		n.err = err
	}
	return got, err
}

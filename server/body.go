package server

import (
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"slices"
	"strings"

	"github.com/perdure/perdure/api"
)

// checkMedia refuses a body that says it is something else than what is taken.
func checkMedia(r *http.Request, taken ...string) error {
	if packed := r.Header.Values("Content-Encoding"); len(packed) > 0 && !(len(packed) == 1 && strings.EqualFold(packed[0], "identity")) {
		return fmt.Errorf("%w: it is packed as %.40q, and is taken as it is", api.ErrMedia, packed)
	}
	given := r.Header.Values("Content-Type")
	if len(given) == 0 || len(given) == 1 && given[0] == "" {
		return nil
	}
	media, params, err := mime.ParseMediaType(given[0])
	if err != nil || len(given) > 1 || !slices.Contains(taken, media) {
		return fmt.Errorf("%w: %.80q, and %s is taken", api.ErrMedia, given, taken[0])
	}
	if set, ok := params["charset"]; ok && !strings.EqualFold(set, "utf-8") {
		return fmt.Errorf("%w: its charset is %.40q, and utf-8 is taken", api.ErrMedia, set)
	}
	return nil
}

// Body returns the JSON body of a request, within the limits of the server.
func (c *Call) Body(w http.ResponseWriter, r *http.Request) ([]byte, error) {
	if err := checkMedia(r, api.TypeJSON); err != nil {
		return nil, err
	}
	body := &weighed{Reader: http.MaxBytesReader(w, r.Body, c.s.opts.MaxBody), load: c.load}
	data, err := io.ReadAll(body)
	var large *http.MaxBytesError
	switch {
	case body.err != nil:
		return nil, body.err
	case errors.As(err, &large):
		return nil, fmt.Errorf("%w: over %d bytes", api.ErrBodyTooLarge, large.Limit)
	case err != nil:
		return nil, fmt.Errorf("%w: %v", api.ErrBody, err)
	case c.load != nil:
		err = c.load.Value(r.Context(), 0) // a large one waits for its turn
	}
	return data, err
}

// weighed is a body whose bytes count.
type weighed struct {
	io.Reader
	load *load
	err  error // why it is not read on
}

// Read reads on.
func (b *weighed) Read(p []byte) (int, error) {
	n, err := b.Reader.Read(p)
	if b.err = b.load.body(n); b.err != nil {
		err = b.err
	}
	return n, err
}

package s3archive

import (
	"context"
	"errors"
	"io"
	"net/http"
	"time"
)

// A service that accepts requests and does not answer would hold up its callers for
// minutes, since a request is repeated. So an operation ends with errSilent as soon as one
// of its requests makes no progress for a while.

// defaultPatience is how long a service may be silent, and slowly by how many times
// longer it may take where it puts an object together, or copies it.
const (
	defaultPatience = 30 * time.Second
	slowly          = 10
)

var errSilent = errors.New("the service does not answer")

// operation is a call of a place, in the context of its requests.
type operation struct {
	cancel   context.CancelCauseFunc
	patience time.Duration
}

type operationKey struct{}

// begin returns the context of an operation, and what ends it.
func (b *bucket) begin(ctx context.Context, times time.Duration) (context.Context, func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	return context.WithValue(ctx, operationKey{}, &operation{cancel, b.patience * times}), func() { cancel(nil) }
}

// watched makes requests, and ends their operation if one makes no progress.
type watched struct{ base http.RoundTripper }

// RoundTrip implements http.RoundTripper.
func (w watched) RoundTrip(r *http.Request) (*http.Response, error) {
	op, ok := r.Context().Value(operationKey{}).(*operation)
	if !ok {
		return w.base.RoundTrip(r)
	}
	timer := time.AfterFunc(op.patience, func() { op.cancel(errSilent) })
	if r.Body != nil && r.Body != http.NoBody {
		r = r.WithContext(r.Context()) // a copy
		r.Body = &sent{r.Body, timer, op.patience}
	}
	answer, err := w.base.RoundTrip(r)
	timer.Stop()
	if err == nil {
		answer.Body = &received{answer.Body, timer, op.patience}
	}
	return answer, err
}

// sent is the body of a request: each part that is asked for is progress.
type sent struct {
	io.ReadCloser
	timer    *time.Timer
	patience time.Duration
}

func (s *sent) Read(p []byte) (int, error) {
	s.timer.Reset(s.patience)
	return s.ReadCloser.Read(p)
}

// received is the body of an answer: its reader may take its time, the service may not.
type received struct {
	io.ReadCloser
	timer    *time.Timer
	patience time.Duration
}

func (r *received) Read(p []byte) (int, error) {
	r.timer.Reset(r.patience)
	defer r.timer.Stop()
	return r.ReadCloser.Read(p)
}

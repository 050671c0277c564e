package server

import (
	"context"
	"fmt"
	"reflect"
	"strconv"
	"strings"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/api"
)

// The tag of a thread, in ETag and If-Match, is its last sequence and, as in the ids of
// events, its life: the same sequence of an erased thread with its id, or of the thread
// before the store was restored, is another tag.

// etag sets the tag that a write can name in If-Match.
func (c *Call) etag(seq uint64, life string) {
	c.header.Set("ETag", strconv.Quote(string(api.IDOf(seq, life, false))))
}

// cutLife returns the sequence and the life in the tag of a thread.
func cutLife(tag string) (seq, life string, err error) {
	seq, life, tagged := strings.Cut(tag, "-")
	if tagged && life == "" {
		return "", "", fmt.Errorf("%.40q is not the tag of a thread", tag)
	}
	return seq, life, nil
}

// checkLife returns ErrStale if the thread that a request is about is in another life
// than its If-Match says. If there is none, the operation says so.
func (c *Call) checkLife(ctx context.Context, in reflect.Value, life string) error {
	if life == api.AnyLife {
		return nil
	}
	thread := ""
	if f := in.FieldByName("Thread"); f.IsValid() {
		thread = f.String()
	} else if f := in.FieldByName("Ask"); f.IsValid() {
		if ask, err := c.Runtime.GetAsk(ctx, f.String()); err == nil {
			thread = ask.Thread
		}
	}
	if thread == "" {
		return nil
	}
	now, err := c.Runtime.Tag(ctx, thread)
	if err != nil || now == life {
		return nil
	}
	t, err := c.Runtime.GetPage(ctx, thread, perdure.RunPage{Limit: 1})
	if err != nil {
		return nil
	}
	return fmt.Errorf("%w, and was begun anew, or its store restored, since the sequence in If-Match was read", &perdure.StaleError{Thread: thread, Seq: t.Seq})
}

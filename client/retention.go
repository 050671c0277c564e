package client

import (
	"context"
	"fmt"
	"iter"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/api"
)

// Retention returns how long the server keeps threads, and how many it has removed.
func (c *Client) Retention(ctx context.Context) (*perdure.RetentionStatus, error) {
	got, err := Do(ctx, c, api.RetentionGet, api.Nothing{})
	if err != nil {
		return nil, err
	}
	got.RetentionStatus.Rules = []perdure.Retention{}
	for i := range got.Rules {
		rule, err := got.Rules[i].Rule()
		if err != nil {
			return nil, fmt.Errorf("a rule of the server: %w", err)
		}
		got.RetentionStatus.Rules = append(got.RetentionStatus.Rules, rule)
	}
	return &got.RetentionStatus, nil
}

// RetentionDue yields the threads that would be archived or erased now, and those that
// would be skipped: see [perdure.Runtime.RetentionDue].
func (c *Client) RetentionDue(ctx context.Context, o perdure.RetentionOptions) iter.Seq2[perdure.RetentionItem, error] {
	return func(yield func(perdure.RetentionItem, error) bool) {
		q, left := api.ListDue{After: o.After}, o.Limit
		for {
			if o.Limit > 0 {
				q.Limit = min(left, 1000)
			}
			page, err := Do(ctx, c, api.RetentionDue, q)
			if err != nil {
				yield(perdure.RetentionItem{}, err)
				return
			}
			for _, item := range page.Threads {
				if !yield(item, nil) {
					return
				}
			}
			left -= len(page.Threads)
			if page.Next == "" || o.Limit > 0 && left <= 0 {
				return
			}
			q.After = page.Next
		}
	}
}

// MarkSeen records that someone has seen that a thread has failed: see
// [perdure.Runtime.MarkSeen].
func (c *Client) MarkSeen(ctx context.Context, thread string, n perdure.Note) error {
	_, err := Do(ctx, c, api.ThreadsSee, api.SeeThread{Thread: thread, IfMatch: n.IfSeq, Reason: n.Reason})
	return err
}

package redisstore

import (
	"context"
	"errors"
	"iter"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/perdure/perdure/store"
)

// Watch implements store.Watcher.
func (s *Store) Watch(ctx context.Context, prefix string) iter.Seq[struct{}] {
	return func(yield func(struct{}) bool) {
		s.news.start()
		for range s.Hub.Watch(ctx, prefix) {
			if !yield(struct{}{}) {
				return
			}
		}
	}
}

// Cast implements store.Caster. The message reaches the listeners of all handles.
func (s *Store) Cast(ctx context.Context, topic string, message []byte) error {
	err := s.Hub.Cast(ctx, topic, message)
	if err == nil {
		s.news.cast(topic, message)
	}
	return err
}

// Hear implements store.Caster.
func (s *Store) Hear(ctx context.Context, topic string, hear func(message []byte)) {
	s.news.start()
	s.Hub.Hear(ctx, topic, hear)
}

// newInterval is the interval of polling just after a handle began to listen, when
// others may not have noticed yet.
const newInterval = 50 * time.Millisecond

// calmInterval is the interval of polling while a handle listens, for writes whose
// notification was lost. Tests change it.
var calmInterval = time.Second

// pollPace returns how long to wait after a poll that began at a time.
func (n *news) pollPace(began time.Time) time.Duration {
	switch up := n.up.Load(); {
	case up == 0:
		return store.PollInterval
	case began.Before(time.Unix(0, up).Add(2 * quietTime)):
		return newInterval
	}
	return calmInterval
}

// poll looks for writes until the store is closed. Any write on the server changes one
// of these numbers. If the server does not tell them, each poll is for a change.
func (n *news) poll() {
	wait := time.NewTimer(0)
	defer wait.Stop()
	for seen := ""; ; {
		select {
		case <-n.s.life.Done():
			return
		case <-n.pace: // what it waits for may be too late now
		case <-wait.C:
		}
		began := time.Now()
		if n.s.Watching() {
			var text string
			err := n.s.call(n.s.life, "read from", func(ctx context.Context, c *redis.Client) (err error) {
				text, err = c.Info(ctx, "persistence").Result()
				return err
			})
			now := ""
			if err == nil { // otherwise the call may go on
				info := parseInfo(text)
				now = info["rdb_changes_since_last_save"] + " " + info["rdb_last_save_time"] + " " + info["aof_current_size"]
			}
			if err == nil && now != seen || errors.Is(err, ErrPassword) {
				n.s.WakeAll()
				seen = now
			}
		}
		wait.Reset(n.pollPace(began))
	}
}

package pgstore

import (
	"context"
	"iter"
	"time"

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

// Cast implements store.Caster. The message reaches the listeners of all handles
// that can listen, see the package comment.
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

// Attend implements store.Attentive. It waits until the handle listens and no other can
// still believe that nobody does, which takes a fraction of a second, once. A handle that
// cannot listen does not wait.
func (s *Store) Attend(ctx context.Context) {
	s.news.start()
	if s.news.listen == nil {
		return
	}
	select {
	case <-s.news.known:
	case <-s.life.Done():
	case <-ctx.Done():
	}
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
	case began.Before(time.Unix(0, up).Add(2 * presencePace)):
		return newInterval
	}
	return calmInterval
}

// poll looks for writes until the store is closed. The commit of a transaction that
// wrote something changes the current snapshot.
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
		var err error
		if n.s.Watching() {
			var now string
			err = n.s.query(n.s.life, "SELECT pg_current_snapshot()::text", func(scan func(...any) error) error { return scan(&now) })
			if err == nil && now != seen {
				n.s.WakeAll()
				seen = now
			}
		}
		pace := n.pollPace(began)
		if err != nil { // this look saw nothing
			pace = min(pace, store.PollInterval)
		}
		wait.Reset(pace)
	}
}

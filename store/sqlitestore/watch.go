package sqlitestore

import (
	"context"
	"iter"
	"sync"
	"time"
)

const (
	// pollInterval is how often a watched store looks for the writes of other
	// handles and processes that cannot tell it.
	pollInterval = 30 * time.Millisecond

	// calmInterval is how often it looks if they can: for what got lost, and
	// for a writer that does not tell.
	calmInterval = time.Second

	// calmAfter is how long after a write that nobody told the poller is calm
	// again.
	calmAfter = time.Minute
)

// Watch implements store.Watcher.
func (s *Store) Watch(ctx context.Context, prefix string) iter.Seq[struct{}] {
	return func(yield func(struct{}) bool) {
		s.peers.join()
		defer s.peers.leave()
		s.poller.join(s)
		defer s.poller.leave()
		for range s.Hub.Watch(ctx, prefix) {
			if !yield(struct{}{}) {
				return
			}
		}
	}
}

// Cast implements store.Caster. The message reaches the listeners of all handles that
// can receive announcements, see the package comment.
func (s *Store) Cast(ctx context.Context, topic string, message []byte) error {
	err := s.Hub.Cast(ctx, topic, message)
	if err == nil {
		s.peers.cast(topic, message)
	}
	return err
}

// Hear implements store.Caster.
func (s *Store) Hear(ctx context.Context, topic string, hear func(message []byte)) {
	s.peers.join()
	defer s.peers.leave()
	s.Hub.Hear(ctx, topic, hear)
}

// A poller looks for the writes of others while someone watches.
type poller struct {
	mu       sync.Mutex
	watchers int
	stop     chan struct{}
	running  sync.WaitGroup

	seen int64     // data_version; never reset, so that nothing before a start is missed
	mute time.Time // when a write was found that nobody told
}

func (p *poller) join(s *Store) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.watchers++
	if p.watchers > 1 || s.closed.Load() {
		return
	}
	p.running.Wait() // for the one that was told to stop
	p.stop = make(chan struct{})
	p.running.Add(1)
	go p.run(s, p.stop)
}

func (p *poller) leave() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.watchers--
	if p.watchers == 0 && p.stop != nil {
		close(p.stop)
		p.stop = nil
	}
}

// wait waits until nobody polls. The store is closing.
func (p *poller) wait() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.running.Wait()
}

func (p *poller) run(s *Store, stop chan struct{}) {
	defer p.running.Done()
	wait := time.NewTimer(0)
	defer wait.Stop()
	heard, recent := false, true // what was written before the start could not be told
	for told := int64(0); ; {
		if p.changed(s, stop) {
			s.WakeAll()
			if s.peers.told.Load() == told && !recent {
				p.mute = time.Now()
			}
		}
		told = s.peers.told.Load()
		switch heard, recent = s.peers.heard(); {
		case recent:
			wait.Reset(lookPace)
		case heard && time.Since(p.mute) > calmAfter:
			wait.Reset(calmInterval)
		default:
			wait.Reset(pollInterval)
		}
		select {
		case <-wait.C:
		case <-stop:
			return
		case <-s.closing:
			return
		}
	}
}

// changed reports whether another connection may have written since the last
// call. The connection that writes is asked, because data_version leaves out
// what the asking connection wrote itself: its watchers are awake already.
func (p *poller) changed(s *Store, stop <-chan struct{}) bool {
	wait := time.NewTicker(pollInterval)
	defer wait.Stop()
	for led := false; !led; {
		select {
		case s.writer.lead <- struct{}{}:
			defer func() { <-s.writer.lead }()
			led = true
		case <-wait.C:
			if s.writer.waits.Load() {
				return true // for another process, which may have written
			}
		case <-stop:
			return false
		case <-s.closing:
			return false
		}
	}
	now, err := dataVersion(s.writer.conn)
	if err != nil {
		return true // whoever reads will see why
	}
	changed := now != p.seen
	p.seen = now
	return changed
}

// dataVersion is asked all the time, so the statement stays prepared.
func dataVersion(c *conn) (int64, error) {
	stmt, err := c.prepare("PRAGMA data_version")
	if err != nil {
		return 0, err
	}
	defer stmt.reset()
	if _, err := stmt.step(); err != nil {
		return 0, err
	}
	return stmt.columnInt64(0), nil
}

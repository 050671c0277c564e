package sqlitestore

import (
	"context"
	"iter"
	"sync"
	"time"
)

// pollInterval is how often a watched store looks for the writes of other
// handles and processes.
const pollInterval = 30 * time.Millisecond

// Watch implements store.Watcher.
func (s *Store) Watch(ctx context.Context, prefix string) iter.Seq[struct{}] {
	return func(yield func(struct{}) bool) {
		s.poller.join(s)
		defer s.poller.leave()
		for range s.Hub.Watch(ctx, prefix) {
			if !yield(struct{}{}) {
				return
			}
		}
	}
}

// A poller looks for the writes of others while someone watches.
type poller struct {
	mu       sync.Mutex
	watchers int
	stop     chan struct{}
	running  sync.WaitGroup

	seen int64 // data_version; never reset, so that nothing before a start is missed
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
	tick := time.NewTicker(pollInterval)
	defer tick.Stop()
	for {
		if p.changed(s, stop) {
			s.WakeAll()
		}
		select {
		case <-tick.C:
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

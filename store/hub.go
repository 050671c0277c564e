package store

import (
	"context"
	"iter"
	"sync"
)

// Hub is a Watcher and a Caster within one process, for drivers to embed: the
// driver calls Wake after each write, and Stop when its handle is closed.
// Handles that share an engine wake each other's watchers: see Share.
type Hub struct {
	bus  *hubBus
	done chan struct{} // closed by Stop
	stop sync.Once
}

type hubBus struct {
	mu        sync.Mutex
	watchers  map[string]map[*hubWatcher]struct{}  // by prefix
	lengths   map[int]int                          // of prefixes, and how many watchers have one
	listeners map[string]map[*hubListener]struct{} // by topic
}

// NewHub returns a hub that is not connected to others.
func NewHub() *Hub {
	return &Hub{done: make(chan struct{}), bus: &hubBus{
		watchers:  map[string]map[*hubWatcher]struct{}{},
		lengths:   map[int]int{},
		listeners: map[string]map[*hubListener]struct{}{},
	}}
}

// Share returns a hub for another handle, connected to this one: what one hub wakes or
// casts reaches the loops of both, but each is stopped separately.
func (h *Hub) Share() *Hub {
	return &Hub{done: make(chan struct{}), bus: h.bus}
}

type hubWatcher struct {
	wake chan struct{} // holds one wake-up: coalesced, never lost
}

type hubListener struct {
	hear func(message []byte)
}

// join adds a member under a key, and leave removes it.
func join[T comparable](all map[string]map[T]struct{}, key string, member T) {
	if all[key] == nil {
		all[key] = map[T]struct{}{}
	}
	all[key][member] = struct{}{}
}

func leave[T comparable](all map[string]map[T]struct{}, key string, member T) {
	if delete(all[key], member); len(all[key]) == 0 {
		delete(all, key)
	}
}

// Wake wakes the watchers of the journal or cell called name.
func (h *Hub) Wake(name string) {
	h.bus.mu.Lock()
	defer h.bus.mu.Unlock()
	for n := range h.bus.lengths { // they are few, and watchers may be many
		if n <= len(name) {
			for w := range h.bus.watchers[name[:n]] {
				w.ring()
			}
		}
	}
}

// WakeAll wakes all watchers, for drivers that know that something has changed
// but not what.
func (h *Hub) WakeAll() {
	h.bus.mu.Lock()
	defer h.bus.mu.Unlock()
	for _, watchers := range h.bus.watchers {
		for w := range watchers {
			w.ring()
		}
	}
}

// Watching reports whether there are any watchers, for drivers that find it expensive
// to look for changes.
func (h *Hub) Watching() bool {
	h.bus.mu.Lock()
	defer h.bus.mu.Unlock()
	return len(h.bus.watchers) > 0
}

// Stop ends this hub's loops over Watch and calls of Hear, including future ones.
func (h *Hub) Stop() { h.stop.Do(func() { close(h.done) }) }

// Watch implements Watcher.
func (h *Hub) Watch(ctx context.Context, prefix string) iter.Seq[struct{}] {
	return func(yield func(struct{}) bool) {
		w := &hubWatcher{wake: make(chan struct{}, 1)}
		h.bus.mu.Lock()
		join(h.bus.watchers, prefix, w)
		h.bus.lengths[len(prefix)]++
		h.bus.mu.Unlock()
		defer func() {
			h.bus.mu.Lock()
			defer h.bus.mu.Unlock()
			leave(h.bus.watchers, prefix, w)
			if h.bus.lengths[len(prefix)]--; h.bus.lengths[len(prefix)] == 0 {
				delete(h.bus.lengths, len(prefix))
			}
		}()
		w.ring() // at once: earlier changes count too
		for {
			select {
			case <-ctx.Done():
				return
			case <-h.done:
				return
			case <-w.wake:
				if ctx.Err() != nil || h.stopped() || !yield(struct{}{}) {
					return
				}
			}
		}
	}
}

// Cast implements Caster.
func (h *Hub) Cast(ctx context.Context, topic string, message []byte) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if h.stopped() {
		return ErrClosed
	}
	h.bus.mu.Lock()
	defer h.bus.mu.Unlock()
	for l := range h.bus.listeners[topic] {
		l.hear(message)
	}
	return nil
}

// Hear implements Caster. A message is heard before Cast returns.
func (h *Hub) Hear(ctx context.Context, topic string, hear func(message []byte)) {
	l := &hubListener{func(message []byte) {
		if ctx.Err() == nil && !h.stopped() {
			hear(message)
		}
	}}
	h.bus.mu.Lock()
	join(h.bus.listeners, topic, l)
	h.bus.mu.Unlock()
	select {
	case <-ctx.Done():
	case <-h.done:
	}
	h.bus.mu.Lock()
	leave(h.bus.listeners, topic, l)
	h.bus.mu.Unlock()
}

func (h *Hub) stopped() bool {
	select {
	case <-h.done:
		return true
	default:
		return false
	}
}

func (w *hubWatcher) ring() {
	select {
	case w.wake <- struct{}{}:
	default:
	}
}

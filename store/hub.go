package store

import (
	"bytes"
	"context"
	"iter"
	"strings"
	"sync"
)

// Hub is a Watcher and a Caster within one process, for drivers to embed: the
// driver calls Wake after each write and Stop when its handle is closed.
// Handles that share an engine share their news too, see Share.
type Hub struct {
	bus  *hubBus
	done chan struct{} // closed by Stop
	stop sync.Once
}

type hubBus struct {
	mu        sync.Mutex
	watchers  map[*hubWatcher]struct{}
	listeners map[*hubListener]struct{}
}

// NewHub returns a hub with news of its own.
func NewHub() *Hub {
	return &Hub{done: make(chan struct{}), bus: &hubBus{
		watchers:  map[*hubWatcher]struct{}{},
		listeners: map[*hubListener]struct{}{},
	}}
}

// Share returns another hub with the same news, for a further handle: what
// one wakes or casts reaches the loops of all, and each is stopped alone.
func (h *Hub) Share() *Hub {
	return &Hub{done: make(chan struct{}), bus: h.bus}
}

type hubWatcher struct {
	prefix string
	wake   chan struct{} // holds one wake-up: coalesced, never lost
}

type hubListener struct {
	topic string
	queue chan []byte
}

// listenBuffer is how many messages a slow listener may lag behind before
// it loses some.
const listenBuffer = 256

// Wake wakes the watchers of the journal or cell called name.
func (h *Hub) Wake(name string) {
	h.bus.mu.Lock()
	defer h.bus.mu.Unlock()
	for w := range h.bus.watchers {
		if strings.HasPrefix(name, w.prefix) {
			w.ring()
		}
	}
}

// WakeAll wakes all watchers, for drivers that see that something changed but
// not what.
func (h *Hub) WakeAll() {
	h.bus.mu.Lock()
	defer h.bus.mu.Unlock()
	for w := range h.bus.watchers {
		w.ring()
	}
}

// Watching reports whether anyone watches, for drivers to which looking for
// changes costs something.
func (h *Hub) Watching() bool {
	h.bus.mu.Lock()
	defer h.bus.mu.Unlock()
	return len(h.bus.watchers) > 0
}

// Stop ends this hub's loops over Watch and Listen, and those to come.
func (h *Hub) Stop() { h.stop.Do(func() { close(h.done) }) }

// Watch implements Watcher.
func (h *Hub) Watch(ctx context.Context, prefix string) iter.Seq[struct{}] {
	return func(yield func(struct{}) bool) {
		w := &hubWatcher{prefix: prefix, wake: make(chan struct{}, 1)}
		h.bus.mu.Lock()
		h.bus.watchers[w] = struct{}{}
		h.bus.mu.Unlock()
		defer func() {
			h.bus.mu.Lock()
			delete(h.bus.watchers, w)
			h.bus.mu.Unlock()
		}()
		w.ring() // at once: what changed before the watch counts too
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
	for l := range h.bus.listeners {
		if l.topic == topic {
			select {
			case l.queue <- bytes.Clone(message):
			default: // a slow listener loses messages, never slows a sender
			}
		}
	}
	return nil
}

// Listen implements Caster.
func (h *Hub) Listen(ctx context.Context, topic string) iter.Seq[[]byte] {
	return func(yield func([]byte) bool) {
		l := &hubListener{topic: topic, queue: make(chan []byte, listenBuffer)}
		h.bus.mu.Lock()
		h.bus.listeners[l] = struct{}{}
		h.bus.mu.Unlock()
		defer func() {
			h.bus.mu.Lock()
			delete(h.bus.listeners, l)
			h.bus.mu.Unlock()
		}()
		for {
			select {
			case <-ctx.Done():
				return
			case <-h.done:
				return
			case m := <-l.queue:
				if ctx.Err() != nil || h.stopped() || !yield(m) {
					return
				}
			}
		}
	}
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

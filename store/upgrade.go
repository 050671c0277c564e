package store

import (
	"bytes"
	"context"
	"iter"
	"time"
)

// Wrapper is a store around another. [As] finds upgrades that the wrapper does not
// implement in the store inside.
type Wrapper interface {
	Unwrap() Store
}

// As finds the outermost store in the chain of wrappers that implements the
// upgrade T.
func As[T any](s Store) (T, bool) {
	for {
		if t, ok := s.(T); ok {
			return t, true
		}
		w, ok := s.(Wrapper)
		if !ok {
			var none T
			return none, false
		}
		s = w.Unwrap()
	}
}

// Watcher is the upgrade of stores that can tell when something changed.
type Watcher interface {
	// Watch yields immediately, and again whenever a journal or cell whose name
	// begins with prefix may have changed since the last yield, through any
	// handle or process. Seeing a change made elsewhere may take up to
	// PollInterval, or a second if the store relies on announcements and one was
	// lost. Changes are coalesced, the last is never lost, and a yield may be for
	// nothing. The loop ends when ctx ends or the store is closed.
	Watch(ctx context.Context, prefix string) iter.Seq[struct{}]
}

// PollInterval is how often Watch polls a store that cannot notify it.
const PollInterval = 200 * time.Millisecond

// Watch calls Watcher.Watch if s is a Watcher; otherwise it yields immediately and then
// every PollInterval. Reading after the last seen sequence in the body of the loop
// misses nothing:
//
//	for range store.Watch(ctx, s, journal) {
//		for e, err := range s.Read(ctx, journal, seen) { … }
//	}
func Watch(ctx context.Context, s Store, prefix string) iter.Seq[struct{}] {
	if w, ok := As[Watcher](s); ok {
		return w.Watch(ctx, prefix)
	}
	return func(yield func(struct{}) bool) {
		tick := time.NewTicker(PollInterval)
		defer tick.Stop()
		for ctx.Err() == nil && yield(struct{}{}) {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
			}
		}
	}
}

// Caster is the upgrade of stores that carry messages between their handles,
// without keeping them. Messages may be lost.
type Caster interface {
	// Cast sends a message to the listeners of a topic.
	Cast(ctx context.Context, topic string, message []byte) error
	// Hear calls hear with each message of a topic until ctx ends or the store is
	// closed: one at a time, in order for each sender, and never after Hear has
	// returned. The sender may be waiting for hear, which must return soon and
	// not call the store. The message is valid until hear returns.
	Hear(ctx context.Context, topic string, hear func(message []byte))
}

// Cast calls Caster.Cast if s has it; otherwise the message is lost.
func Cast(ctx context.Context, s Store, topic string, message []byte) error {
	if c, ok := As[Caster](s); ok {
		return c.Cast(ctx, topic, message)
	}
	return nil
}

// Hear calls Caster.Hear if s has it; otherwise it hears nothing and returns when
// ctx ends.
func Hear(ctx context.Context, s Store, topic string, hear func(message []byte)) {
	if c, ok := As[Caster](s); ok {
		c.Hear(ctx, topic, hear)
	} else {
		<-ctx.Done()
	}
}

// Attentive is the upgrade of a Caster that takes time to begin hearing other handles.
type Attentive interface {
	// Attend returns once Hear receives everything that other handles cast from then
	// on, or when ctx ends.
	Attend(ctx context.Context)
}

// Attend calls Attentive.Attend if s has it.
func Attend(ctx context.Context, s Store) {
	if a, ok := As[Attentive](s); ok {
		a.Attend(ctx)
	}
}

// listenBuffer is how many messages a loop over Listen may lag before it loses some.
const listenBuffer = 256

// Listen yields the messages that Hear receives. A slow loop misses some, but never
// slows down a sender.
func Listen(ctx context.Context, s Store, topic string) iter.Seq[[]byte] {
	return func(yield func([]byte) bool) {
		ctx, cancel := context.WithCancel(ctx)
		queue, over := make(chan []byte, listenBuffer), make(chan struct{})
		go func() {
			defer close(over)
			Hear(ctx, s, topic, func(message []byte) {
				select {
				case queue <- bytes.Clone(message):
				default:
				}
			})
		}()
		defer func() {
			cancel()
			<-over
		}()
		for {
			select {
			case <-over:
				return
			case m := <-queue:
				if ctx.Err() != nil || !yield(m) {
					return
				}
			}
		}
	}
}

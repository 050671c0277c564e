// Package feed follows threads, and lists of threads, once for all readers who
// want to know what happens there: one of them reads the journal and encodes,
// and all take from what it keeps. It imports the runtime, package api and
// internal/sse.
package feed

import "sync"

// Hub has the feeds that somebody follows. The zero value is ready to use.
type Hub struct {
	mu    sync.Mutex
	tails map[Place]*Tail
	news  map[string]*News // by tenant
}

// Place is a thread of a tenant. Its life tells it from one that was erased and
// had the same id.
type Place struct{ Tenant, Thread, Life string }

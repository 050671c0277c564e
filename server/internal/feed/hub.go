// Package feed follows threads, and lists of threads, once for all readers: the
// journal is read and encoded once, and all readers share the result. It imports
// the runtime, package api and internal/sse.
package feed

import "sync"

// Hub holds the feeds that have readers. The zero value is ready to use.
type Hub struct {
	mu    sync.Mutex
	tails map[Place]*Tail
	news  map[string]*News // by tenant
}

// Place is a thread of a tenant. Its life distinguishes it from an erased thread
// with the same id.
type Place struct{ Tenant, Thread, Life string }

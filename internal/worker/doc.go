// Package worker decides who executes what, and when: it finds due work, takes
// turns between owners, claims runs and takes over those of workers that died. It
// may import internal/engine, upkeep and lease, and what those import.
package worker

// Package threads names, reads and changes threads: it folds their journals,
// with the past that forks share, and keeps the cells that follow from them. It
// may import internal/journal, tree, due, blob, fault, exact and clock, and store.
package threads

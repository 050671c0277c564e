// Package tree is the memory of one run: a tree of named nodes, built from
// the run's entries, and the decisions that follow from it. A flow is called
// again to resume it; a [Frame] follows it through the tree and says for each
// verb whether its outcome is recorded, whether it has to run, whether it
// waits, or whether the code no longer fits what is recorded.
//
// It does no I/O, reads no clock, and may import only journal.
package tree

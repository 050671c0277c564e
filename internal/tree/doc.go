// Package tree is the memory of one run: a tree of named nodes, built from the
// run's entries, and the decisions that follow from it. A run is resumed by
// calling its flow again; a [Frame] follows the call through the tree and says
// for each verb whether its outcome is recorded, whether it has to run, whether
// it is waiting, or whether the code no longer matches the record.
//
// It does no I/O, reads no clock, and may import only journal.
package tree

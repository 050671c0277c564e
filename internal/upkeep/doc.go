// Package upkeep restores what was lost: it rebuilds hints and summaries from
// journals, and finishes imports and erases that were cut off. It may import the
// rooms of threads and their lifecycle, and what those import.
package upkeep

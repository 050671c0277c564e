// Package engine executes runs: a pass calls the code of a flow, its verbs look
// up what is on record, and what is new is committed, entry by entry. It may
// import internal/threads, lifecycle and archive, and what those import.
package engine

// Package fault holds the errors of the kernel: its sentinels, what the journal
// keeps of an error, and the marks that steer retries. It imports
// internal/journal and internal/scrub.
package fault

package threads

import "github.com/perdure/perdure/internal/journal"

// Summarised returns the summary that a thread would have now.
func Summarised(t *journal.Thread) Summary { return summaryOf(t) }

package threads

// SummaryOf is summaryOf for tests.
var SummaryOf = summaryOf

// KeptBytes returns how many bytes the kept folds take, and how many there are.
func (c *Threads) KeptBytes() (bytes int64, n int) {
	c.folds.mu.Lock()
	defer c.folds.mu.Unlock()
	return c.folds.bytes, len(c.folds.named)
}

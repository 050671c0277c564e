package sqlitestore

// Queued returns how many writes wait.
func (s *Store) Queued() int {
	s.writer.mu.Lock()
	defer s.writer.mu.Unlock()
	return len(s.writer.queue)
}

// Pending returns how many bytes are kept for peers.
func (s *Store) Pending() (n int) {
	s.peers.mu.Lock()
	defer s.peers.mu.Unlock()
	for _, to := range s.peers.to {
		to.mu.Lock()
		n += cap(to.casts)
		for name := range to.names {
			n += len(name)
		}
		to.mu.Unlock()
	}
	return n
}

// SetFreeSpace replaces how much room there seems to be, until it is called again
// with what it returned.
func SetFreeSpace(f func(file string) int64) (was func(file string) int64) {
	was, freeSpace = freeSpace, f
	return was
}

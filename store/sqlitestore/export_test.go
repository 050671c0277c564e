package sqlitestore

// Queued returns how many writes wait.
func (s *Store) Queued() int {
	s.writer.mu.Lock()
	defer s.writer.mu.Unlock()
	return len(s.writer.queue)
}

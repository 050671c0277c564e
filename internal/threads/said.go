package threads

import "sync"

// maxSaid limits the bytes of messages that are kept for a step. The messages of a
// step that says more are dropped, and later listeners wait for its outcome.
const maxSaid = 64 << 10

// Said holds the messages that the running steps of this process have cast, so
// that a listener that arrives in the middle of a reply gets all of it. The zero
// value is ready to use.
type Said struct {
	mu      sync.Mutex
	threads map[string]map[*Saying]bool // by name
}

// Saying holds the messages of one step.
type Saying struct {
	all    *Said
	thread string
	lines  [][]byte
	size   int
}

// Begin adds a step of a thread. The caller must call End when the step is over.
func (s *Said) Begin(thread string) *Saying {
	said := &Saying{all: s, thread: thread}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.threads == nil {
		s.threads = map[string]map[*Saying]bool{}
	}
	if s.threads[thread] == nil {
		s.threads[thread] = map[*Saying]bool{}
	}
	s.threads[thread][said] = true
	return said
}

// Add keeps a message of the step. The caller must not modify line afterwards.
func (s *Saying) Add(line []byte) {
	s.all.mu.Lock()
	defer s.all.mu.Unlock()
	if s.size += len(line); s.size > maxSaid {
		s.lines = nil
		return
	}
	s.lines = append(s.lines, line)
}

// End removes the messages of the step.
func (s *Saying) End() {
	s.all.mu.Lock()
	defer s.all.mu.Unlock()
	if delete(s.all.threads[s.thread], s); len(s.all.threads[s.thread]) == 0 {
		delete(s.all.threads, s.thread)
	}
}

// ForgetThread removes the messages of all steps of a thread.
func (s *Said) ForgetThread(thread string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.threads, thread)
}

// Lines returns the messages of a thread's running steps, those of each step in
// order.
func (s *Said) Lines(thread string) (lines [][]byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for said := range s.threads[thread] {
		lines = append(lines, said.lines...)
	}
	return lines
}

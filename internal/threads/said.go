package threads

import "sync"

// maxSaid is how many bytes of messages are kept for a step. A step that says more
// is forgotten, and whoever comes later waits for its outcome.
const maxSaid = 64 << 10

// Said holds the messages that the running steps of this process have cast, so that
// whoever begins to listen in the middle of a reply gets all of it. The zero value
// is ready to use.
type Said struct {
	mu      sync.Mutex
	threads map[string]map[any]*saying // by name, and by step
}

// saying is what one step has said.
type saying struct {
	lines [][]byte
	size  int
}

// Add keeps a message of a step, which must not change any more. The step is
// anything that identifies it.
func (s *Said) Add(thread string, step any, line []byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	steps := s.threads[thread]
	if steps == nil {
		if s.threads == nil {
			s.threads = map[string]map[any]*saying{}
		}
		steps = map[any]*saying{}
		s.threads[thread] = steps
	}
	said := steps[step]
	if said == nil {
		said = new(saying)
		steps[step] = said
	}
	if said.size += len(line); said.size > maxSaid {
		said.lines = nil
		return
	}
	said.lines = append(said.lines, line)
}

// Forget removes the messages of a step that is over.
func (s *Said) Forget(thread string, step any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if delete(s.threads[thread], step); len(s.threads[thread]) == 0 {
		delete(s.threads, thread)
	}
}

// ForgetThread removes the messages of all steps of a thread.
func (s *Said) ForgetThread(thread string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.threads, thread)
}

// Lines returns the messages of a thread, those of each step in order.
func (s *Said) Lines(thread string) (lines [][]byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, said := range s.threads[thread] {
		lines = append(lines, said.lines...)
	}
	return lines
}

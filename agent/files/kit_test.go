package files

import (
	"context"
	"strings"
	"sync"
)

// testShelf is a shelf in memory.
type testShelf struct {
	mu  sync.Mutex
	all map[string]string
}

var _ Shelf = (*testShelf)(nil)

func (s *testShelf) Get(_ context.Context, key string) ([]byte, bool, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	v, ok := s.all[key]
	return []byte(v), ok, nil
}

func (s *testShelf) Put(_ context.Context, key string, v []byte) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.all == nil {
		s.all = map[string]string{}
	}
	s.all[key] = string(v)
	return nil
}

func (s *testShelf) Delete(_ context.Context, key string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.all, key)
	return nil
}

func (s *testShelf) List(_ context.Context, prefix string) ([]string, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var keys []string
	for k := range s.all {
		if strings.HasPrefix(k, prefix) {
			keys = append(keys, k)
		}
	}
	return keys, nil
}

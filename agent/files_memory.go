package agent

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strings"
)

// MemoryFiles keeps files in the memory of the thread's owner, see
// [MemoryHere], in its namespace "files" or a part of that: all threads of the
// user share them. They outlive the thread, and are not forked or rewound with
// it. A file has at most about 120 KiB. They are read in leaf steps too, as
// [FileTools] do.
func MemoryFiles(part ...string) Files {
	return SharedFiles(memoryShelf{slices.Concat([]string{"files"}, part)})
}

type memoryShelf struct{ part []string }

var _ Shelf = memoryShelf{}

func (s memoryShelf) here(ctx context.Context) (*Memory, Namespace, error) {
	m, err := MemoryHere(ctx)
	if err != nil {
		return nil, nil, err
	}
	return m, append(m.Home(), s.part...), nil
}

func (s memoryShelf) Get(ctx context.Context, key string) ([]byte, bool, error) {
	m, ns, err := s.here(ctx)
	if err != nil {
		return nil, false, err
	}
	item, err := m.Get(ctx, ns, key)
	if errors.Is(err, ErrNoMemory) {
		return nil, false, nil
	}
	if err != nil {
		return nil, false, err
	}
	return item.Value, true, nil
}

func (s memoryShelf) Put(ctx context.Context, key string, value []byte) error {
	m, ns, err := s.here(ctx)
	if err != nil {
		return err
	}
	_, err = m.Put(ctx, ns, key, json.RawMessage(value), MemoryOptions{})
	return err
}

func (s memoryShelf) Delete(ctx context.Context, key string) error {
	m, ns, err := s.here(ctx)
	if err != nil {
		return err
	}
	return m.Delete(ctx, ns, key, "")
}

func (s memoryShelf) List(ctx context.Context, prefix string) ([]string, error) {
	m, ns, err := s.here(ctx)
	if err != nil {
		return nil, err
	}
	var keys []string
	for item, err := range m.List(ctx, ns, MemoryList{}) {
		if err != nil {
			return nil, err
		}
		if len(item.Namespace) == len(ns) && strings.HasPrefix(item.Key, prefix) { // not those of a part of it
			keys = append(keys, item.Key)
		}
	}
	return keys, nil
}

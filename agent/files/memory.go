package files

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strings"

	"github.com/perdure/perdure/agent/memory"
)

// Memory keeps files in the memory of the thread's owner, see [memory.Here], in
// its namespace "files" or a part of that: all threads of the user share them.
// They outlive the thread and are not forked or rewound with it. A file can have up to
// about 120 KiB. Reads, like writes, belong in leaf steps.
func Memory(part ...string) FS {
	return Shared(memoryShelf{slices.Concat([]string{"files"}, part)})
}

type memoryShelf struct{ part []string }

var _ Shelf = memoryShelf{}

func (s memoryShelf) open(ctx context.Context) (*memory.Memory, memory.Namespace, error) {
	m, err := memory.Here(ctx)
	if err != nil {
		return nil, nil, err
	}
	return m, append(m.Home(), s.part...), nil
}

func (s memoryShelf) Get(ctx context.Context, key string) ([]byte, bool, error) {
	m, ns, err := s.open(ctx)
	if err != nil {
		return nil, false, err
	}
	item, err := m.Get(ctx, ns, key)
	if errors.Is(err, memory.ErrNotFound) {
		return nil, false, nil
	}
	if err != nil {
		return nil, false, err
	}
	return item.Value, true, nil
}

func (s memoryShelf) Put(ctx context.Context, key string, value []byte) error {
	m, ns, err := s.open(ctx)
	if err != nil {
		return err
	}
	_, err = m.Put(ctx, ns, key, json.RawMessage(value), memory.PutOptions{})
	return err
}

func (s memoryShelf) Delete(ctx context.Context, key string) error {
	m, ns, err := s.open(ctx)
	if err != nil {
		return err
	}
	return m.Delete(ctx, ns, key, "")
}

func (s memoryShelf) List(ctx context.Context, prefix string) ([]string, error) {
	m, ns, err := s.open(ctx)
	if err != nil {
		return nil, err
	}
	var keys []string
	for item, err := range m.List(ctx, ns, memory.ListOptions{}) {
		if err != nil {
			return nil, err
		}
		if len(item.Namespace) == len(ns) && strings.HasPrefix(item.Key, prefix) { // not those of a part of it
			keys = append(keys, item.Key)
		}
	}
	return keys, nil
}

package proof_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/perdure/perdure/internal/explore"
	"github.com/perdure/perdure/store"
)

// The stores below each lack one guard that the protocol rests on. That the
// explorer finds each of them shows that the explored tests can fail.

// hintLast writes hints behind the facts that they announce.
type hintLast struct {
	store.Store
	late func() error
}

func (s *hintLast) Unwrap() store.Store { return s.Store }

func (s *hintLast) Put(ctx context.Context, key string, value []byte, prev store.Version) (store.Version, error) {
	if !strings.HasPrefix(key, "due/") {
		return s.Store.Put(ctx, key, value, prev)
	}
	s.late = func() error {
		_, err := s.Store.Put(ctx, key, value, prev)
		return err
	}
	return "later", nil
}

func (s *hintLast) Append(ctx context.Context, journal string, after uint64, entries ...[]byte) (uint64, error) {
	last, err := s.Store.Append(ctx, journal, after, entries...)
	if err == nil && s.late != nil {
		err, s.late = s.late(), nil
		if errors.Is(err, store.ErrConflict) { // somebody has seen to the hint
			err = nil
		}
	}
	return last, err
}

// deleteAny deletes a cell whatever its version is.
type deleteAny struct{ store.Store }

func (s deleteAny) Unwrap() store.Store { return s.Store }

func (s deleteAny) Delete(ctx context.Context, key string, _ store.Version) error {
	cell, err := s.Get(ctx, key)
	if err != nil {
		return err
	}
	return s.Store.Delete(ctx, key, cell.Version)
}

// putAny overwrites what leads from a thread's id to its name.
type putAny struct{ store.Store }

func (s putAny) Unwrap() store.Store { return s.Store }

func (s putAny) Put(ctx context.Context, key string, value []byte, prev store.Version) (store.Version, error) {
	if cell, err := s.Get(ctx, key); err == nil && strings.HasPrefix(key, "id/") {
		prev = cell.Version
	}
	return s.Store.Put(ctx, key, value, prev)
}

// yesMan answers a conflicting append with success.
type yesMan struct{ store.Store }

func (s yesMan) Unwrap() store.Store { return s.Store }

func (s yesMan) Append(ctx context.Context, journal string, after uint64, entries ...[]byte) (uint64, error) {
	last, err := s.Store.Append(ctx, journal, after, entries...)
	if errors.Is(err, store.ErrConflict) {
		return after + uint64(len(entries)), nil
	}
	return last, err
}

// appendAnywhere appends behind whatever is there.
type appendAnywhere struct{ store.Store }

func (s appendAnywhere) Unwrap() store.Store { return s.Store }

func (s appendAnywhere) Append(ctx context.Context, journal string, after uint64, entries ...[]byte) (uint64, error) {
	for {
		last, err := s.Store.Append(ctx, journal, after, entries...)
		if !errors.Is(err, store.ErrConflict) {
			return last, err
		}
		all, err := store.ReadAll(ctx, s.Store, journal, 0)
		if err != nil {
			return 0, err
		}
		after = uint64(len(all))
	}
}

func TestExploredFlawsAreFound(t *testing.T) {
	late := flaw{outside: func(s store.Store) store.Store { return &hintLast{Store: s} }}
	unseen := flaw{worker: func(s store.Store) store.Store { return deleteAny{s} }}
	named := flaw{outside: func(s store.Store) store.Store { return putAny{s} }}
	ignored := flaw{outside: func(s store.Store) store.Store { return yesMan{s} }}
	blind := flaw{worker: func(s store.Store) store.Store { return appendAnywhere{s} }}
	for _, tc := range []struct {
		name  string
		plot  plot
		cfg   explore.Config
		flaw  flaw
		words string
	}{
		{"a hint behind its answer", (*scene).suspending, explore.Config{}, late, "the run is suspended"},
		{"a hint behind its answer, and a crash", (*scene).waking, explore.Config{Crashes: 1}, late, "the run is suspended"},
		{"a hint deleted unseen", (*scene).suspending, explore.Config{}, unseen, "the run is suspended"},
		{"a suspension without compare-and-swap", (*scene).suspending, explore.Config{}, blind, "damaged"},
		{"an answer that ignores a conflict", (*scene).suspending, explore.Config{}, ignored, "0 answers"},
		{"a signal that ignores a conflict", (*scene).receiving, explore.Config{}, ignored, "0 signals"},
		{"a signal's hint deleted unseen", (*scene).receivingAgain, explore.Config{}, unseen, "the run is suspended"},
		{"two answers that ignore a conflict", twoAnswers("yes", "no"), explore.Config{}, ignored, "ann got"},
		{"an answer that ignores an expiry", (*scene).expiring, explore.Config{Delays: 1}, ignored, "the person got"},
		{"a cancel that ignores a conflict", (*scene).cancelling, explore.Config{}, ignored, "the person got"},
		{"two starts that overwrite the name", starting("t", "in", "in"), explore.Config{}, named, "2 threads"},
		{"a start that ignores a conflict", starting("t", "x", "y"), explore.Config{}, ignored, "who sent"},
		{"a hint behind its start, and a crash", (*scene).repeating, explore.Config{Crashes: 1}, late, "the run does not end"},
		{"two claims without compare-and-swap", (*scene).claiming, explore.Config{}, blind, "damaged"},
	} {
		t.Run(tc.name, func(t *testing.T) { exploreFlawed(t, tc.cfg, tc.plot, tc.flaw, tc.words) })
	}
}

package natsstore

import (
	"context"
	"errors"
	"iter"
	"slices"
	"strings"
	"sync"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/perdure/perdure/store"
)

// window is how many messages a reader asks for at a time.
const window = 32

// Read implements store.Store.
func (s *Store) Read(ctx context.Context, journal string, after uint64) iter.Seq2[store.Entry, error] {
	return func(yield func(store.Entry, error) bool) {
		if err := s.read(ctx, journal, after, func(e store.Entry) bool { return yield(e, nil) }); err != nil {
			yield(store.Entry{}, err)
		}
	}
}

func (s *Store) read(ctx context.Context, journal string, after uint64, yield func(store.Entry) bool) error {
	if err := s.usable(ctx); err != nil {
		return err
	}
	if err := store.CheckName("journal", journal); err != nil {
		return err
	}
	h, newest, err := s.load(ctx, journal)
	switch {
	case err != nil:
		return err
	case h.dropped:
		return store.WasDropped(journal)
	case h.last <= after:
		return nil
	}
	// From the head to the first append that is wanted, by their indexes.
	places := []place{h.place}
	for oldest := newest; oldest.start > after+1; {
		if len(oldest.index) == 0 {
			return s.missing(ctx, journal, oldest.start-1, places[len(places)-1])
		}
		for _, p := range oldest.index {
			if p.last <= after {
				break
			}
			places = append(places, p)
		}
		first := places[len(places)-1]
		if len(oldest.index) < maxIndex || oldest.index[len(oldest.index)-1].last <= after {
			break
		}
		if oldest, err = s.getAppend(ctx, journal, first); err != nil {
			return err
		}
	}
	slices.Reverse(places)
	for next := uint64(0); len(places) > 0; {
		page, err := s.getAppends(ctx, journal, places[:min(window, len(places))], newest)
		for i, a := range page {
			if a == nil {
				return err
			}
			if next != 0 && a.start != next || next == 0 && a.start > after+1 {
				return s.missing(ctx, journal, max(next, after+1), places[i])
			}
			for j, data := range a.entries {
				seq := a.start + uint64(j)
				if seq <= after {
					continue
				}
				if err := s.usable(ctx); err != nil {
					return err
				}
				if !yield(store.Entry{Seq: seq, Data: data}) {
					return nil
				}
			}
			next = a.last() + 1
		}
		places = places[len(page):]
	}
	return nil
}

// getAppends gets appends at once. If one is missing in what it returns, err says why.
func (s *Store) getAppends(ctx context.Context, journal string, places []place, newest *appended) ([]*appended, error) {
	page, errs := make([]*appended, len(places)), make([]error, len(places))
	var wg sync.WaitGroup
	for i, p := range places {
		if p.last == newest.last() {
			page[i] = newest
			continue
		}
		wg.Go(func() { page[i], errs[i] = s.getAppend(ctx, journal, p) })
	}
	wg.Wait()
	for _, err := range errs {
		if err != nil {
			return page, err
		}
	}
	return page, nil
}

// getAppend gets the append at a place.
func (s *Store) getAppend(ctx context.Context, journal string, p place) (*appended, error) {
	subject := s.subject(kindJournal, journal)
	m, err := s.get(ctx, p.at)
	switch {
	case errors.Is(err, jetstream.ErrMsgNotFound):
		return nil, s.missing(ctx, journal, p.last, p)
	case err != nil:
		return nil, err
	case m.Subject != subject:
		return nil, s.missing(ctx, journal, p.last, p)
	}
	kind, body, err := unseal(subject, m.Data)
	var a *appended
	if err == nil {
		a, err = decodeAppend(body)
	}
	if err == nil && (kind != isAppend || a.last() != p.last) {
		err = &damage{"the message is not the append that later ones point to"}
	}
	if err != nil {
		return nil, s.corrupt(journal, p.last, p.at, err)
	}
	return a, nil
}

// missing returns the error of an append that is not in the stream: the journal may have
// been dropped meanwhile.
func (s *Store) missing(ctx context.Context, journal string, seq uint64, p place) error {
	if h, _, err := s.load(ctx, journal); err == nil && h.dropped {
		return store.WasDropped(journal)
	}
	return s.corrupt(journal, seq, p.at, &damage{"the append is missing"})
}

// Journals implements store.Store. It asks for the names of all journals and sorts
// them: the server lists subjects in no order.
func (s *Store) Journals(ctx context.Context, after string) iter.Seq2[string, error] {
	return func(yield func(string, error) bool) {
		err := s.usable(ctx)
		var all, dropped []string
		if err == nil {
			all, err = s.names(ctx, kindJournal, "")
		}
		if err == nil {
			dropped, err = s.names(ctx, kindDropped, "") // second, so that none is missed
		}
		if err != nil {
			yield("", err)
			return
		}
		i, _ := slices.BinarySearch(all, after)
		for _, name := range all[i:] {
			if name == after {
				continue
			}
			if _, gone := slices.BinarySearch(dropped, name); gone {
				continue
			}
			if err := s.usable(ctx); err != nil {
				yield("", err)
				return
			}
			if !yield(name, nil) {
				return
			}
		}
	}
}

// names returns the names of a kind that begin with a prefix, sorted.
func (s *Store) names(ctx context.Context, kind, prefix string) ([]string, error) {
	base := s.prefix + "." + kind + "."
	var info *jetstream.StreamInfo
	err := s.ask(ctx, func(call context.Context) (err error) {
		info, err = s.stream.Info(call, jetstream.WithSubjectFilter(base+common(prefix)))
		return err
	})
	if err != nil {
		return nil, s.failed(ctx, "list", err)
	}
	var names []string
	for subject := range info.State.Subjects {
		if name, ok := decode(strings.TrimPrefix(subject, base)); ok && strings.HasPrefix(name, prefix) {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names, nil
}

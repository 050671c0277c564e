package perdure_test

import (
	"errors"
	"testing"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/store/memstore"
)

// TestEventsOfALife reads a thread, and another one that has its id later.
func TestEventsOfALife(t *testing.T) {
	st := memstore.New()
	defer st.Close()
	rt, err := perdure.New(t.Context(), st, perdure.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := rt.Life(t.Context(), "a"); !errors.Is(err, perdure.ErrNoThread) {
		t.Errorf("before: %v", err)
	}
	read := func(life string) (n int, err error) {
		for _, err := range rt.Events(t.Context(), "a", perdure.EventOptions{Replay: true, Life: life}) {
			if err != nil {
				return n, err
			}
			n++
		}
		return n, nil
	}
	var lives []string
	for range 2 {
		if _, err := rt.Create(t.Context(), perdure.CreateRequest{Thread: "a"}); err != nil {
			t.Fatal(err)
		}
		life, err := rt.Life(t.Context(), "a")
		if err != nil {
			t.Fatal(err)
		}
		if n, err := read(life); n == 0 || err != nil {
			t.Errorf("of its life there are %d: %v", n, err)
		}
		for _, old := range lives {
			if n, err := read(old); n != 0 || !errors.Is(err, perdure.ErrErased) {
				t.Errorf("of another life there are %d: %v", n, err)
			}
		}
		if err := rt.Erase(t.Context(), "a", perdure.EraseOptions{}); err != nil {
			t.Fatal(err)
		}
		if n, err := read(life); n != 0 || !errors.Is(err, perdure.ErrErased) {
			t.Errorf("of an erased life there are %d: %v", n, err)
		}
		lives = append(lives, life)
	}
	if lives[0] == lives[1] {
		t.Error("both lives are the same")
	}
}

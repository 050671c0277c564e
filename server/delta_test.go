package server_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/servertest"
	"github.com/perdure/perdure/server"
	"github.com/perdure/perdure/store/memstore"
)

// deltaLate is a store whose messages take a second, as they may between
// processes.
type deltaLate struct {
	*memstore.Store
	mu   sync.Mutex
	sent [][]byte
}

func (d *deltaLate) Cast(_ context.Context, _ string, message []byte) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.sent = append(d.sent, message)
	return nil
}

func (d *deltaLate) Listen(ctx context.Context, _ string) iter.Seq[[]byte] {
	return func(yield func([]byte) bool) {
		for ctx.Err() == nil {
			select {
			case <-ctx.Done():
				return
			case <-time.After(time.Second):
			}
			d.mu.Lock()
			sent := d.sent
			d.sent = nil
			d.mu.Unlock()
			for _, m := range sent {
				if !yield(m) {
					return
				}
			}
		}
	}
}

// deltaFlow fails once behind a step that speaks, and then waits inside it.
func deltaFlow(let <-chan bool) perdure.Flow {
	return perdure.NewFlow("say", func(ctx context.Context, _ string) (string, error) {
		if _, err := perdure.Step(ctx, "once", func(ctx context.Context) (string, error) {
			perdure.Delta(ctx, "once")
			return "once", nil
		}); err != nil {
			return "", err
		}
		return perdure.Step(ctx, "twice", func(ctx context.Context) (string, error) {
			perdure.Delta(ctx, "twice")
			select {
			case ok := <-let:
				if !ok {
					return "", errors.New("not now")
				}
				return "twice", nil
			case <-ctx.Done():
				return "", ctx.Err()
			}
		})
	})
}

func TestNoDeltaComesBehindItsStep(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		let := make(chan bool)
		s := servertest.NewPiped(t, &deltaLate{Store: memstore.New()}, server.Options{}, true, deltaFlow(let))
		s.Begin("a", "say", "")
		time.Sleep(time.Minute)
		st := s.Open("/v1/threads/a/events")
		time.AfterFunc(time.Minute, st.Close)
		told := map[string]bool{}
		for b, ok := st.Next(); ok; b, ok = st.Next() {
			if b.Kind == "delta" {
				for _, word := range []string{"once", "twice"} {
					told[word] = told[word] || strings.Contains(b.Data, `"data":"`+word)
				}
			}
		}
		if told["once"] || !told["twice"] {
			t.Errorf("deltas are told of %v", told)
		}
	})
}

// TestDeltasOfARetryAreTold lets a step fail, which ends the run, and run again.
func TestDeltasOfARetryAreTold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		let := make(chan bool)
		s := servertest.NewPiped(t, &deltaLate{Store: memstore.New()}, server.Options{}, true, deltaFlow(let))
		run := s.Begin("a", "say", "")
		let <- false
		servertest.Must(s.Runtime.WaitEnd(t.Context(), "a", run.ID))(t)
		servertest.Check(t, s.Runtime.Retry(t.Context(), "a", run.ID, perdure.Note{}))
		time.Sleep(time.Minute)
		st := s.Open("/v1/threads/a/events")
		time.AfterFunc(time.Minute, st.Close)
		told := false
		for b, ok := st.Next(); ok; b, ok = st.Next() {
			told = told || b.Kind == "delta" && strings.Contains(b.Data, "twice")
		}
		if !told {
			t.Error("a step that runs again is not heard")
		}
	})
}

// TestNoDeltaOfAReplacedWorkerIsTold lets a worker speak on that does not know
// yet that another one has taken over.
func TestNoDeltaOfAReplacedWorkerIsTold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		late := &deltaLate{Store: memstore.New()}
		s := servertest.NewPiped(t, late, server.Options{}, true, deltaFlow(make(chan bool)))
		run := s.Begin("a", "say", "")
		st := s.Open("/v1/threads/a/events")
		time.AfterFunc(time.Minute, st.Close)
		time.Sleep(10 * time.Second)
		for i, pass := range []int{2, 1, 2} {
			servertest.Check(t, late.Cast(t.Context(), "", fmt.Appendf(nil, `{"run":%q,"path":"/twice","pass":%d,"attempt":1,"offset":%d,"data":"pass %d"}`, run.ID, pass, i, pass)))
		}
		told := map[string]int{}
		for b, ok := st.Next(); ok; b, ok = st.Next() {
			var d perdure.DeltaEvent
			if b.Kind == "delta" && json.Unmarshal([]byte(b.Data), &d) == nil {
				told[fmt.Sprint(d.Pass, " ", string(d.Data))]++
			}
		}
		if told[`1 "twice"`] != 1 || told[`1 "pass 1"`] != 0 || told[`2 "pass 2"`] != 2 {
			t.Errorf("deltas are told of %v", told)
		}
	})
}

package engine_test

import (
	"context"
	"encoding/json"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/engine"
	"github.com/perdure/perdure/internal/kit"
	"github.com/perdure/perdure/store/memstore"
)

// remark counts how often one is decoded.
type remark struct{ Text string }

var decodings atomic.Int64

func (r *remark) UnmarshalJSON(raw []byte) error {
	decodings.Add(1)
	return json.Unmarshal(raw, &r.Text)
}

func (r remark) MarshalJSON() ([]byte, error) { return json.Marshal(r.Text) }

// TestSharedValuesAreDecodedOnce: a run decodes what was appended to a list since
// the run before it, in a process that has just begun everything once, and who does
// not share gets values of its own.
func TestSharedValuesAreDecodedOnce(t *testing.T) {
	const runs = 100
	read := func(ctx context.Context, shared bool) (texts []string, err error) {
		for r, err := range engine.ReadBackward[remark](ctx, "remarks", shared) {
			if err != nil {
				return nil, err
			}
			texts = append(texts, r.Text)
			if !shared {
				r.Text = "changed"
			}
		}
		return texts, nil
	}
	flow := perdure.NewFlow("talk", func(ctx context.Context, n int) (bool, error) {
		first, err := read(ctx, true)
		if err != nil {
			return false, err
		}
		if n == runs-1 {
			if _, err := read(ctx, false); err != nil {
				return false, err
			}
		}
		again, err := read(ctx, true)
		if want := make([]string, n); err == nil {
			for i := range want {
				want[i] = fmt.Sprint("remark ", n-1-i)
			}
			if fmt.Sprint(first) != fmt.Sprint(want) || fmt.Sprint(again) != fmt.Sprint(want) {
				err = perdure.Permanent(fmt.Errorf("it reads %v and %v", first, again))
			}
		}
		if err != nil {
			return false, err
		}
		_, err = perdure.Step(ctx, "say", func(ctx context.Context) (string, error) {
			return fmt.Sprint("remark ", n), perdure.NewList[string]("remarks").AppendResult(ctx)
		})
		return true, err
	})
	synctest.Test(t, func(t *testing.T) {
		s := memstore.New()
		turn := func(k *kit.Kit, n int) int64 {
			before := decodings.Load()
			k.StartOn("t", "talk", n)
			k.WaitFor("t", perdure.Succeeded)
			synctest.Wait()
			return decodings.Load() - before
		}
		k := kit.New(t, s, perdure.Options{}, flow)
		for n := range runs - 2 {
			if took := turn(k, n); n > 40 && took > 5 {
				t.Fatalf("run %d decoded %d values", n, took)
			}
		}
		k.Stop()
		k = kit.New(t, s, perdure.Options{}, flow)
		if took := turn(k, runs-2); took < runs-2 || took > runs+5 {
			t.Errorf("the first run of a process decoded %d values", took)
		}
		if took := turn(k, runs-1); took < runs-1 || took > runs+5 {
			t.Errorf("a run that once does not share decoded %d values", took)
		}
	})
}

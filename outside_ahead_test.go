package perdure_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/perdure/perdure"
)

func TestEventsBehindTheEndAreOneError(t *testing.T) {
	for _, replay := range []bool{false, true} {
		bubble(t, fmt.Sprintf("replay %v", replay), func(t *testing.T) {
			k := newKit(t, nil, perdure.Options{}, echoFlow("echo"))
			k.start("t", "echo", "")
			k.wait("t", perdure.Succeeded)
			synctest.Wait()
			end := k.seqOf("t")
			items := func(after uint64) (events int, errs []error) {
				ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
				defer cancel()
				for _, err := range k.Events(ctx, "t", perdure.EventOptions{After: after, Replay: replay}) {
					if err != nil {
						errs = append(errs, err)
					} else {
						events++
					}
				}
				return events, errs
			}
			if n, errs := items(end); n != 0 || len(errs) != 0 {
				t.Errorf("after the last one: %d events, %v", n, errs)
			}
			for _, after := range []uint64{end + 1, end + 1000, 1 << 63} {
				n, errs := items(after)
				if n != 0 || len(errs) != 1 || !errors.Is(errs[0], perdure.ErrAhead) || !errors.Is(errs[0], perdure.ErrInvalid) ||
					!strings.Contains(errs[0].Error(), fmt.Sprintf("ends at %d", end)) {
					t.Errorf("after %d: %d events, %v; want one ErrAhead that names %d", after, n, errs, end)
				}
			}
		})
	}
}

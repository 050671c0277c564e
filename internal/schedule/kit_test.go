package schedule_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/kit"
	"github.com/perdure/perdure/internal/lifecycle"
	"github.com/perdure/perdure/internal/schedule"
	"github.com/perdure/perdure/internal/threads"
)

// flows end at once, wait for an answer, or take a while.
func flows() []perdure.Flow {
	return []perdure.Flow{kit.EchoFlow("echo"), kit.AskFlow("ask", perdure.Question{Prompt: "?"}),
		perdure.NewFlow("nap", func(ctx context.Context, for_ string) (string, error) {
			d, err := time.ParseDuration(for_)
			if err == nil {
				err = perdure.Sleep(ctx, "nap", d)
			}
			return "", err
		})}
}

func put(t *testing.T, rt *perdure.Runtime, q perdure.ScheduleRequest) *perdure.Schedule {
	t.Helper()
	if q.Flow == "" {
		q.Flow = "echo"
	}
	if q.Input == nil {
		q.Input = "x"
	}
	s, err := rt.PutSchedule(t.Context(), q)
	kit.NoErr(t, err)
	return s
}

func get(t *testing.T, rt *perdure.Runtime, id string) *perdure.Schedule {
	t.Helper()
	s, err := rt.Schedule(t.Context(), id)
	kit.NoErr(t, err)
	return s
}

// recent says what came of the last firings, oldest first, in minutes of the test.
func recent(s *perdure.Schedule, begun time.Time) string {
	var all []string
	for _, f := range s.Recent {
		text := fmt.Sprint(f.Outcome, " ", f.At.Sub(begun).Minutes())
		if !f.Until.IsZero() {
			text += fmt.Sprint("-", f.Until.Sub(begun).Minutes())
		}
		all = append([]string{text}, all...)
	}
	return strings.Join(all, ", ")
}

// wantFirings checks that there is a run for each of the planned times, and no other.
func wantFirings(t *testing.T, rt *perdure.Runtime, id string, planned []time.Time) {
	t.Helper()
	tenant := threads.Behind(rt)
	s, err := schedule.Get(t.Context(), tenant, id)
	kit.NoErr(t, err)
	life := lifecycle.New(tenant, 0, nil)
	for _, at := range planned {
		_, run, err := life.FindStarted(t.Context(), s.Thread, s.Key(at.UnixMicro()))
		if err != nil || run == "" {
			t.Errorf("schedule %s: the firing of %v was lost: %v", id, at.UTC(), err)
			return
		}
	}
	n := 0
	for th, err := range rt.List(t.Context(), perdure.ListOptions{Metadata: map[string]string{"perdure.schedule": id}}) {
		kit.NoErr(t, err)
		if n++; s.Thread != "" {
			o, err := tenant.Open(t.Context(), th.ID)
			kit.NoErr(t, err)
			n = len(o.Thread.Runs)
		}
	}
	if n != len(planned) || s.Fired != n {
		t.Errorf("schedule %s has %d runs and counts %d, want %d", id, n, s.Fired, len(planned))
	}
}

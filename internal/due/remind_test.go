package due

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/perdure/perdure/store/memstore"
)

// TestRemindWritesOnlyWhatIsMissing goes through what may be there.
func TestRemindWritesOnlyWhatIsMissing(t *testing.T) {
	hint, alarm := "due/flow/thread/thread", fmt.Sprintf("alarm/flow/%016x/thread", int64(far))
	for _, c := range []struct {
		name  string
		at    int64
		there func(t *testing.T, s *memstore.Store)
		wrote bool
		want  []string
	}{
		{"due, nothing there", 1, nil, true, []string{hint}},
		{"near, nothing there", near, nil, true, []string{hint}},
		{"far, nothing there", far, nil, true, []string{alarm}},
		{"due, and a later hint", 1, func(t *testing.T, s *memstore.Store) { mustAnnounce(t, s, 5, near) }, true, []string{hint}},
		{"near, and a hint", near, func(t *testing.T, s *memstore.Store) { mustAnnounce(t, s, 5, near) }, false, []string{hint}},
		{"far, and an earlier hint", far, func(t *testing.T, s *memstore.Store) { mustAnnounce(t, s, 5, 1) }, false, []string{hint}},
		{"far, and the alarm", far, func(t *testing.T, s *memstore.Store) { sleep(t, s, "thread", far) }, false, []string{alarm}},
		{"due, and an alarm", 1, func(t *testing.T, s *memstore.Store) { sleep(t, s, "thread", far) }, true, []string{alarm, hint}},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := memstore.New()
			if c.there != nil {
				c.there(t, s)
			}
			for i := range 2 {
				wrote, err := Remind(t.Context(), s, "flow", "thread", 3, c.at, noon)
				if err != nil || wrote != (c.wrote && i == 0) {
					t.Errorf("call %d: %v, %v", i, wrote, err)
				}
				if diff := cmp.Diff(c.want, cells(t, s)); diff != "" {
					t.Errorf("call %d (-want +got):\n%s", i, diff)
				}
			}
			if h := get(t, s); h != nil && h.Due > c.at {
				t.Errorf("the hint is due at %d", h.Due)
			}
		})
	}
}

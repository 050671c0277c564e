package cli

import (
	"strings"
	"testing"
	"time"

	"github.com/perdure/perdure/internal/terminal"
	"github.com/perdure/perdure/internal/threads"
	"github.com/perdure/perdure/store"
	"github.com/perdure/perdure/store/memstore"
)

// TestDoctorJudgesTheClock by its year, and by the monotonic one.
func TestDoctorJudgesTheClock(t *testing.T) {
	at := func(year int) time.Time { return time.Date(year, 5, 6, 7, 8, 9, 0, time.UTC) }
	for _, test := range []struct {
		now  time.Time
		wall time.Duration
		want string
	}{
		{at(2026), 100 * time.Millisecond, fine},
		{at(2026), 120 * time.Millisecond, fine},
		{at(1970), 100 * time.Millisecond, broken},
		{at(2400), 100 * time.Millisecond, broken},
		{at(2026), time.Hour, poor},
		{at(2026), -time.Hour, poor},
	} {
		d := &doctor{app: testApp(terminal.Terminal{})}
		d.judgeClock(test.now, 100*time.Millisecond, test.wall)
		if got := d.found[0].Status; got != test.want {
			t.Errorf("%v that goes %v is %s, want %s", test.now, test.wall, got, test.want)
		}
	}
}

// TestDoctorSaysWhyAStoreIsWeak, if the store knows.
func TestDoctorSaysWhyAStoreIsWeak(t *testing.T) {
	for s, want := range map[store.Store]string{
		memstore.New(): "use sqlite:",
		weakStore{memstore.New(), "set fsync always"}: "set fsync always",
	} {
		d := &doctor{app: testApp(terminal.Terminal{})}
		d.durability(s)
		if got := d.found[0]; got.Status != poor || !strings.Contains(got.Fix, want) {
			t.Errorf("the doctor says %+v, want %q", got, want)
		}
	}
}

type weakStore struct {
	store.Store
	why string
}

func (w weakStore) Weakness() string { return w.why }

// TestDoctorNamesInterruptedErases of users, and none if there are none.
func TestDoctorNamesInterruptedErases(t *testing.T) {
	s := memstore.New()
	d := &doctor{app: testApp(terminal.Terminal{})}
	if d.erases(t.Context(), s); len(d.found) != 0 {
		t.Errorf("the doctor says %+v", d.found)
	}
	if _, err := s.Put(t.Context(), threads.ErasingUser+"tenant/user", []byte("{}"), ""); err != nil {
		t.Fatal(err)
	}
	if d.erases(t.Context(), s); len(d.found) != 1 || d.found[0].Status != poor || !strings.Contains(d.found[0].Fix, "erase --user") {
		t.Errorf("the doctor says %+v", d.found)
	}
}

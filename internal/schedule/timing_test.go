package schedule_test

import (
	"fmt"
	"slices"
	"testing"
	"time"
	_ "time/tzdata"

	"github.com/perdure/perdure/cron"
	"github.com/perdure/perdure/internal/kit"
	"github.com/perdure/perdure/internal/schedule"
)

// readings are cron expressions, and functions that say the same.
var readings = map[string]func(w time.Time) bool{
	"30 2 * * *":        func(w time.Time) bool { return w.Hour() == 2 && w.Minute() == 30 },
	"0 0 * * *":         func(w time.Time) bool { return w.Hour() == 0 && w.Minute() == 0 },
	"*/20 0-3 * * *":    func(w time.Time) bool { return w.Hour() <= 3 && w.Minute()%20 == 0 },
	"0 * * * *":         func(w time.Time) bool { return w.Minute() == 0 },
	"15 1 * * SUN":      func(w time.Time) bool { return w.Weekday() == 0 && w.Hour() == 1 && w.Minute() == 15 },
	"59 23 28-31 * *":   func(w time.Time) bool { return w.Day() >= 28 && w.Hour() == 23 && w.Minute() == 59 },
	"45 12 29 2-12/5 *": func(w time.Time) bool { return w.Day() == 29 && w.Month()%5 == 2 && w.Hour() == 12 && w.Minute() == 45 },
}

// TestZones compares with a clock on the wall that is looked at every minute of the year:
// a firing is made when the clock first shows its time, or jumps past it.
func TestZones(t *testing.T) {
	years := []struct {
		zone string
		year int
	}{
		{"Australia/Lord_Howe", 2025}, {"Pacific/Apia", 2011}, {"America/New_York", 2040}, {"Australia/Sydney", 2040}, {"Europe/Berlin", 2026}, {"America/Havana", 2026},
		{"America/New_York", 2026}, {"America/Sao_Paulo", 2018}, {"Africa/Casablanca", 2026}, {"Asia/Beirut", 2024}, {"Europe/Berlin", 2024}, {"Asia/Kolkata", 2026},
		{"America/Caracas", 2016}, {"Asia/Pyongyang", 2018}, {"Antarctica/Troll", 2025}, {"Europe/Dublin", 2025}, {"Asia/Gaza", 2025}, {"America/St_Johns", 2006},
	}
	for _, y := range years[:kit.Sized(3, len(years), len(years))] {
		t.Run(fmt.Sprint(y.zone, y.year), func(t *testing.T) {
			loc, err := time.LoadLocation(y.zone)
			kit.NoErr(t, err)
			begin, end := time.Date(y.year, 1, 1, 0, 0, 0, 0, time.UTC), time.Date(y.year+1, 1, 1, 0, 0, 0, 0, time.UTC)
			wall := func(at time.Time) time.Time {
				_, offset := at.In(loc).Zone()
				return at.Add(time.Duration(offset) * time.Second)
			}
			want := map[string][]int64{}
			shown := wall(begin)
			for at := begin.Add(time.Minute); !at.After(end); at = at.Add(time.Minute) {
				now := wall(at)
				if !now.After(shown) {
					continue
				}
				for expr, fits := range readings {
					for w := shown.Add(time.Minute); !w.After(now); w = w.Add(time.Minute) {
						if fits(w) {
							want[expr] = append(want[expr], at.UnixMicro())
							break
						}
					}
				}
				shown = now
			}
			for expr := range readings {
				timing := schedule.Timing{Cron: expr, Zone: y.zone, Until: end.UnixMicro()}
				kit.NoErr(t, timing.Check(cron.Expressions{}))
				var got []int64
				for at, ok := timing.Next(cron.Expressions{}, begin.UnixMicro()); ok; at, ok = timing.Next(cron.Expressions{}, at) {
					got = append(got, at)
				}
				if !slices.Equal(got, want[expr]) {
					i := 0
					for i < min(len(got), len(want[expr])) && got[i] == want[expr][i] {
						i++
					}
					t.Errorf("%s: %d firings, want %d; the first difference is after %v", expr, len(got), len(want[expr]), time.UnixMicro(got[max(0, i-1)]).In(loc))
				}
				if latest := timing.Latest(cron.Expressions{}, begin.UnixMicro(), end.UnixMicro(), 7); !slices.Equal(latest, got[max(0, len(got)-7):]) {
					t.Errorf("%s: the latest are %v", expr, latest)
				}
			}
		})
	}
}

// TestIntervals counts from the start.
// TestYears steps over the ends of years, leap years among them, in zones that have a rule
// for the years to come.
func TestYears(t *testing.T) {
	for _, zone := range []string{"America/New_York", "Europe/Berlin", "Australia/Sydney", "Africa/Casablanca", "UTC"} {
		loc, err := time.LoadLocation(zone)
		kit.NoErr(t, err)
		timing := schedule.Timing{Cron: "@yearly", Zone: zone}
		at := time.Date(2026, 7, 1, 0, 0, 0, 0, time.UTC).UnixMicro()
		for year := 2027; year < 2090; year++ {
			next, ok := timing.Next(cron.Expressions{}, at)
			if want := time.Date(year, 1, 1, 0, 0, 0, 0, loc); !ok || next != want.UnixMicro() {
				t.Fatalf("%s: after %v comes %v, %v; want %v", zone, time.UnixMicro(at).In(loc), time.UnixMicro(next).In(loc), ok, want)
			}
			at = next
		}
	}
}

func TestIntervals(t *testing.T) {
	timing := schedule.Timing{Every: 7e6, Start: 100e6, Until: 130e6}
	var got []int64
	for at, ok := timing.Next(nil, 0); ok; at, ok = timing.Next(nil, at) {
		got = append(got, at/1e6)
	}
	if !slices.Equal(got, []int64{100, 107, 114, 121, 128}) {
		t.Errorf("%v", got)
	}
	if got := timing.Latest(nil, 100e6, 129e6, 2); !slices.Equal(got, []int64{121e6, 128e6}) {
		t.Errorf("%v", got)
	}
	if got := timing.Latest(nil, 100e6, 113e6, 5); !slices.Equal(got, []int64{100e6, 107e6}) {
		t.Errorf("%v", got)
	}
}

package schedule

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/perdure/perdure/internal/fault"
)

// Cron knows cron expressions: see perdure.Cron.
type Cron interface {
	Check(expr string) error
	Next(expr string, after time.Time) (time.Time, bool)
}

// Timing says when a schedule fires: by a cron expression in a time zone, or every so
// often. Times are in Unix microseconds.
type Timing struct {
	Cron  string `json:"cron,omitempty"`
	Zone  string `json:"zone,omitempty"`  // IANA name; "" is UTC
	Every int64  `json:"every,omitempty"` // microseconds
	Start int64  `json:"start,omitempty"` // no firing is earlier; an interval counts from it
	Until int64  `json:"until,omitempty"` // no firing is later; 0: there is no end
}

// The bounds of the times of a schedule: those that JSON can hold.
const (
	firstTime = -62135596800_000000 // 0001-01-01
	lastTime  = 253402300799_999999 // the end of 9999
)

// The bounds of an interval.
const (
	minEvery = time.Second
	maxEvery = 10 * 366 * 24 * time.Hour
)

// Check returns what is wrong with a timing.
func (t *Timing) Check(cron Cron) error {
	switch every := time.Duration(t.Every) * time.Microsecond; {
	case t.Cron == "" && t.Every == 0:
		return fmt.Errorf("%w: a schedule needs a cron expression such as %q, or an interval such as 15m", fault.ErrInvalid, "0 9 * * MON-FRI")
	case t.Cron != "" && t.Every != 0:
		return fmt.Errorf("%w: a schedule has a cron expression or an interval, not both", fault.ErrInvalid)
	case t.Every != 0 && (every < minEvery || t.Every > maxEvery.Microseconds()):
		return fmt.Errorf("%w: an interval of %v; use %v to ten years", fault.ErrInvalid, every, minEvery)
	case t.Every != 0 && t.Zone != "":
		return fmt.Errorf("%w: an interval has no time zone; leave the zone out, or use a cron expression", fault.ErrInvalid)
	case t.Until != 0 && t.Until < t.Start:
		return fmt.Errorf("%w: the schedule ends before it starts", fault.ErrInvalid)
	case t.Every != 0:
		return nil
	case cron == nil:
		return fmt.Errorf("%w: this program knows no cron expressions; import _ \"github.com/perdure/perdure/cron\", or use an interval", fault.ErrInvalid)
	}
	if _, err := t.location(); err != nil {
		return err
	}
	if err := cron.Check(t.Cron); err != nil {
		return fmt.Errorf("%w: the cron expression %.100q: %w", fault.ErrInvalid, t.Cron, err)
	}
	return nil
}

func (t *Timing) location() (*time.Location, error) {
	// Local is another one on each machine, and the others are not there on all.
	area, _, _ := strings.Cut(t.Zone, "/")
	if t.Zone != "" && slices.Contains([]string{"", "Local", "localtime", "posixrules", "Factory", "right", "posix"}, area) {
		return nil, fmt.Errorf("%w: %q names no time zone; use an IANA name such as Europe/Berlin", fault.ErrInvalid, t.Zone)
	}
	if loc, ok := zones.Load(t.Zone); ok {
		return loc.(*time.Location), nil
	}
	loc, err := time.LoadLocation(t.Zone)
	if err != nil {
		return nil, fmt.Errorf("%w: %w; use an IANA name such as Europe/Berlin; if it is one, the program needs the time zones of its system, or of package time/tzdata", fault.ErrInvalid, err)
	}
	zones.Store(t.Zone, loc)
	return loc, nil
}

// Location returns the time zone, UTC if this program does not have it.
func (t *Timing) Location() *time.Location {
	loc, err := t.location()
	if err != nil {
		return time.UTC
	}
	return loc
}

// zones are the time zones that were read.
var zones sync.Map

// Next returns the first firing after a time, false if there is none.
func (t *Timing) Next(cron Cron, after int64) (int64, bool) {
	after = max(after, t.Start-1)
	var next int64
	switch {
	case t.Every > 0:
		n := (after - t.Start) / t.Every
		if after < t.Start {
			n = -1
		}
		next = t.Start + (n+1)*t.Every
	case cron == nil:
		return 0, false
	default:
		loc, err := t.location()
		if err != nil {
			return 0, false
		}
		var ok bool
		if next, ok = nextTick(cron, t.Cron, loc, after); !ok {
			return 0, false
		}
	}
	return next, next <= lastTime && (t.Until == 0 || next <= t.Until)
}

// nextTick returns the first firing of a cron expression after a time.
func nextTick(cron Cron, expr string, loc *time.Location, after int64) (int64, bool) {
	for wall := wallAt(time.UnixMicro(after).In(loc)); ; {
		var ok bool
		if wall, ok = cron.Next(expr, wall); !ok {
			return 0, false
		}
		// In an hour that the clock shows for the second time, its readings have been.
		if at := reached(wall, loc).UnixMicro(); at > after {
			return at, true
		}
	}
}

// wallAt returns what the clock on the wall shows at a time, as if it were UTC.
func wallAt(t time.Time) time.Time {
	return time.Date(t.Year(), t.Month(), t.Day(), t.Hour(), t.Minute(), t.Second(), t.Nanosecond(), time.UTC)
}

// reached returns when the clock on the wall of a place first shows a time, or a later
// one: if it is put forward past the time, that is the moment at which that happens.
func reached(wall time.Time, loc *time.Location) time.Time {
	t := wall.Add(-48 * time.Hour).In(loc) // no zone is so far from UTC
	for {
		_, offset := t.Zone()
		begin, end := t.ZoneBounds()
		if !end.IsZero() && !end.After(t) { // on the last day of a leap year, which Go leaves out
			end = t.Add(time.Hour)
		}
		at := wall.Add(-time.Duration(offset) * time.Second)
		switch {
		case !begin.IsZero() && at.Before(begin):
			return begin
		case end.IsZero() || at.Before(end):
			return at
		}
		t = end
	}
}

// Latest returns up to n firings, the latest ones that are not after a time and not
// before another, in order.
func (t *Timing) Latest(cron Cron, from, to int64, n int) []int64 {
	if t.Every > 0 {
		from = max(from, to-int64(n+1)*t.Every)
	}
	for window := int64(time.Hour / time.Microsecond); ; window *= 4 {
		begin := max(from, to-window)
		var all []int64
		for at, ok := t.Next(cron, begin-1); ok && at <= to; at, ok = t.Next(cron, at) {
			if all = append(all, at); len(all) > n {
				all = all[1:]
			}
		}
		if len(all) == n || begin == from {
			return all
		}
	}
}

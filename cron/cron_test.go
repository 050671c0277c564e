package cron_test

import (
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/perdure/perdure/cron"
)

// rule returns, by the rules of cron, a function that says whether an expression fits a
// minute.
func rule(expr string) func(t time.Time) bool {
	f := strings.Fields(expr)
	var sets [5]map[int]bool
	for i, bounds := range [5][2]int{{0, 59}, {0, 23}, {1, 31}, {1, 12}, {0, 6}} {
		sets[i] = map[int]bool{}
		for part := range strings.SplitSeq(f[i], ",") {
			numbers, stepText, stepped := strings.Cut(part, "/")
			first, last, step := bounds[0], bounds[1], 1
			if stepped {
				step, _ = strconv.Atoi(stepText)
			}
			if numbers != "*" {
				a, b, isRange := strings.Cut(numbers, "-")
				first, _ = strconv.Atoi(a)
				switch {
				case isRange:
					last, _ = strconv.Atoi(b)
				case !stepped:
					last = first
				}
			}
			for n := first; n <= last; n += step {
				if i == 4 && n == 7 {
					sets[i][0] = true
				}
				sets[i][n] = true
			}
		}
	}
	either := !strings.HasPrefix(f[2], "*") && !strings.HasPrefix(f[4], "*")
	return func(t time.Time) bool {
		day, weekday := sets[2][t.Day()], sets[4][int(t.Weekday())]
		return sets[0][t.Minute()] && sets[1][t.Hour()] && sets[3][int(t.Month())] && (day && weekday || either && (day || weekday))
	}
}

// random returns an expression that fits often enough to be found by counting minutes.
func random(r *rand.Rand) string {
	field := func(low, high int, wild float64) string {
		if r.Float64() < wild {
			return "*"
		}
		part := func() string {
			a, b := low+r.IntN(high-low+1), low+r.IntN(high-low+1)
			a, b = min(a, b), max(a, b)
			switch r.IntN(5) {
			case 0:
				return fmt.Sprintf("%d-%d", a, b)
			case 1:
				return fmt.Sprintf("*/%d", 1+r.IntN(high))
			case 2:
				return fmt.Sprintf("%d-%d/%d", a, b, 1+r.IntN(5))
			case 3:
				return fmt.Sprintf("%d/%d", a, 1+r.IntN(high))
			}
			return strconv.Itoa(a)
		}
		all := []string{part()}
		for r.IntN(3) == 0 {
			all = append(all, part())
		}
		return strings.Join(all, ",")
	}
	return strings.Join([]string{field(0, 59, .2), field(0, 23, .4), field(1, 31, .6), field(1, 12, .8), field(0, 7, .6)}, " ")
}

// TestNext compares with counting minutes.
func TestNext(t *testing.T) {
	r := rand.New(rand.NewPCG(5, 6))
	n := 1000
	if testing.Short() {
		n = 200
	}
	for range n {
		expr := random(r)
		if err := (cron.Expressions{}).Check(expr); err != nil {
			if !strings.Contains(err.Error(), "no such day") && !strings.Contains(err.Error(), "write 0 for Sunday") {
				t.Fatalf("%s: %v", expr, err)
			}
			continue
		}
		fits := rule(expr)
		at := time.Date(2023+r.IntN(3), time.Month(1+r.IntN(12)), 1+r.IntN(28), r.IntN(24), r.IntN(60), r.IntN(2)*r.IntN(60), 0, time.UTC)
		for range 3 {
			got, ok := cron.Expressions{}.Next(expr, at)
			want := at.Truncate(time.Minute).Add(time.Minute)
			for end := at.AddDate(0, 3, 0); !fits(want) && want.Before(end); {
				want = want.Add(time.Minute)
			}
			if !fits(want) { // it is far away
				if ok && (!fits(got) || got.Before(want)) {
					t.Errorf("%s after %v: %v does not fit", expr, at, got)
				}
				break
			}
			if !ok || !got.Equal(want) {
				t.Errorf("%s after %v: %v %v, want %v", expr, at, got, ok, want)
				break
			}
			at = got
		}
	}
}

func TestCheck(t *testing.T) {
	for expr, want := range map[string]string{
		"0 9 * * MON-FRI":          "",
		"*/15 8-18 1,15 jan *":     "",
		"@daily":                   "",
		" @Weekly ":                "",
		"0 0 29 2 *":               "",
		"5/15 * * * 7":             "",
		"0 0 30 2 *":               "no such day",
		"0 9 * *":                  "4 fields instead of 5",
		"0 0 9 * * MON":            "6 fields instead of 5",
		"60 * * * *":               `the minute "60": "60" is not from 0 to 59`,
		"1,99 * * * *":             `"99" is not from 0 to 59`,
		"* * * * 5-1":              "ends before it begins",
		"*/0 * * * *":              "the step",
		"1-2-3 * * * *":            "is none of",
		"? * * * *":                "is none of",
		"a b c d e":                `the minute "a": "a" is not from 0 to 59`,
		"* * L * *":                `"L" is not from 1 to 31`,
		"* * * * MONDAY":           `"MONDAY" is not from 0 to 7`,
		"* * * * 7/2":              "write 0 for Sunday",
		"@every 5m":                "use an interval",
		"@everysecond":             "use an interval",
		"":                         "0 fields",
		"* * * * *\x00":            "is none of",
		strings.Repeat("1,", 9999): "limit is 500",
	} {
		err := cron.Expressions{}.Check(expr)
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%.40q: %v, want %q", expr, err, want)
		}
	}
}

// TestRareDays has days that come after years.
func TestRareDays(t *testing.T) {
	for _, c := range []struct{ expr, after, want string }{
		{"0 0 29 2 *", "2096-03-01 00:00", "2104-02-29 00:00"},
		{"30 12 31 12 *", "2026-12-31 12:30", "2027-12-31 12:30"},
		{"0 0 31 */2 *", "2026-01-31 00:00", "2026-03-31 00:00"},
		{"0 0 13 * 5", "2026-11-13 00:00", "2026-11-20 00:00"},
		{"59 23 * * *", "2026-12-31 23:59", "2027-01-01 23:59"},
	} {
		after, _ := time.Parse("2006-01-02 15:04", c.after)
		got, ok := cron.Expressions{}.Next(c.expr, after)
		if !ok || got.Format("2006-01-02 15:04") != c.want {
			t.Errorf("%s after %s: %v %v, want %s", c.expr, c.after, got, ok, c.want)
		}
	}
}

// Package cron enables cron expressions in schedules: see perdure.Schedule. Import it for
// its side effect; programs that use package cli need not:
//
//	import _ "github.com/perdure/perdure/cron"
//
// It is a package of its own so that the kernel depends on no other module. It may
// import package perdure and github.com/adhocore/gronx.
package cron

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/adhocore/gronx"
	"github.com/perdure/perdure"
)

func init() { perdure.RegisterCron(Expressions{}) }

// Expressions evaluates cron expressions of five fields: minute, hour, day of the month,
// month and day of the week. A field is *, a number, a range such as 1-5, a step such as
// */15, 10-40/5 or 5/15, which is 5-59/15, or a list of these. Months and days may be
// given as JAN to DEC and SUN to SAT; SUN is 0 or 7. If both days are restricted, either
// may match, unless one of them begins with *. There are also @yearly, @annually,
// @monthly, @weekly, @daily, @midnight and @hourly.
type Expressions struct{}

var _ perdure.Cron = Expressions{}

// fields are the fields of an expression.
var fields = []struct {
	name     string
	min, max int
	names    []string
}{
	{"minute", 0, 59, nil},
	{"hour", 0, 23, nil},
	{"day of the month", 1, 31, nil},
	{"month", 1, 12, strings.Fields("JAN FEB MAR APR MAY JUN JUL AUG SEP OCT NOV DEC")},
	{"day of the week", 0, 7, strings.Fields("SUN MON TUE WED THU FRI SAT")},
}

var names = map[string]string{
	"@yearly": "0 0 1 1 *", "@annually": "0 0 1 1 *", "@monthly": "0 0 1 * *", "@weekly": "0 0 * * 0",
	"@daily": "0 0 * * *", "@midnight": "0 0 * * *", "@hourly": "0 * * * *",
}

// plain returns an expression with its fields alone.
func plain(expr string) string {
	expr = strings.TrimSpace(expr)
	if full, ok := names[strings.ToLower(expr)]; ok {
		return full
	}
	return strings.Join(strings.Fields(expr), " ")
}

// maxExpr is how many bytes an expression may have.
const maxExpr = 500

// Check returns what is wrong with an expression.
func (Expressions) Check(expr string) error {
	if len(expr) > maxExpr {
		return fmt.Errorf("it has %d bytes; the limit is %d", len(expr), maxExpr)
	}
	if strings.HasPrefix(strings.TrimSpace(expr), "@") && plain(expr)[0] == '@' {
		return fmt.Errorf("there are @yearly, @monthly, @weekly, @daily and @hourly; for other times write five fields, or use an interval")
	}
	parts := strings.Fields(plain(expr))
	if len(parts) != len(fields) {
		return fmt.Errorf("it has %d fields instead of 5: minute, hour, day of the month, month, day of the week", len(parts))
	}
	for i, f := range fields {
		for part := range strings.SplitSeq(parts[i], ",") {
			if err := checkPart(part, f.min, f.max, f.names); err != nil {
				return fmt.Errorf("the %s %q: %w", f.name, parts[i], err)
			}
		}
	}
	if _, ok := (Expressions{}).Next(expr, time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC)); !ok {
		return fmt.Errorf("there is no such day")
	}
	return nil
}

var partRe = regexp.MustCompile(`^(?:\*|([A-Za-z0-9]+)(?:-([A-Za-z0-9]+))?)(?:/([0-9]+))?$`)

func checkPart(part string, low, high int, names []string) error {
	m := partRe.FindStringSubmatch(part)
	if m == nil {
		return fmt.Errorf("%q is none of *, a number, 1-5, */15 and 10-40/5", part)
	}
	value := func(text string) (int, error) {
		for i, name := range names {
			if strings.EqualFold(text, name) {
				return i + low, nil
			}
		}
		n, err := strconv.Atoi(text)
		if err != nil || n < low || n > high || len(text) > 2 {
			return 0, fmt.Errorf("%q is not from %d to %d", text, low, high)
		}
		return n, nil
	}
	first, last := low, high
	var err error
	if m[1] != "" {
		if first, err = value(m[1]); err != nil {
			return err
		}
	}
	if m[2] != "" {
		if last, err = value(m[2]); err != nil {
			return err
		}
	}
	if high == 7 && first == 7 && (m[2] != "" || m[3] != "") {
		return fmt.Errorf("%q: write 0 for Sunday at the beginning of a range or step", part)
	}
	if last < first {
		return fmt.Errorf("%q ends before it begins", part)
	}
	if m[3] != "" {
		if n, err := strconv.Atoi(m[3]); err != nil || n < 1 || n > high {
			return fmt.Errorf("the step of %q is not from 1 to %d", part, high)
		}
	}
	return nil
}

// Next returns the first time after the given one that fits an expression, false if
// there is none within some years. Both are readings of a clock on a wall, as if they
// were UTC.
func (Expressions) Next(expr string, after time.Time) (time.Time, bool) {
	// Only the readings that exist in UTC are asked for, where every day has 24 hours:
	// what a time zone does to them is up to the caller.
	at, err := gronx.NextTickAfter(strings.ToUpper(plain(expr)), after.UTC().Truncate(time.Second), false)
	return at, err == nil && at.After(after)
}

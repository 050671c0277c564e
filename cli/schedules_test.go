package cli

import (
	"strings"
	"testing"

	"github.com/perdure/perdure/cli/internal/exit"
)

// TestScheduleCommands makes a schedule, and does everything to it.
func TestScheduleCommands(t *testing.T) {
	both(t, func(t *testing.T, p *place) {
		p.run("", "run", "echo", "tea").want(exit.OK)
		p.run("", "schedules", "list").want(exit.OK, "there are no schedules")
		p.run("", "schedules", "add", "tea", "echo", "tea", "--cron", "0 16 * * *", "--zone", "Europe/London", "--metadata", "kind=drink").
			want(exit.OK, "schedule tea: flow echo, 0 16 * * * Europe/London, active", "next:", " 16:00:00 ")
		p.run("", "schedules", "add", "tea", "echo", "tea", "--cron", "0 16 * *").want(exit.BadUsage, "4 fields instead of 5")
		p.run("", "schedules", "add", "tea", "none", "--every", "5m").want(exit.NotFound, "unknown flow")
		p.run("", "schedules", "add", "milk", "echo", "milk", "--every", "1d", "--overlap", "queue", "--catch-up", "all").want(exit.OK, "every 1d", "overlapping ones: queue")
		p.run("", "schedules", "list").want(exit.OK, "milk", "every 1d", "tea", "active")
		p.run("", "schedules", "next", "tea", "--limit", "3").want(exit.OK, "T16:00:00")
		p.run("", "schedules", "add", "chai", "echo", "chai", "--cron", "30 9 * * *", "--zone", "Asia/Kolkata").want(exit.OK)
		p.run("", "schedules", "next", "chai").want(exit.OK, "T09:30:00+05:30\n")
		p.run("", "schedules", "add", "late", "echo", "tea", "--cron", "0 0 30 2 *").want(exit.BadUsage, "no such day")
		p.run("", "run", "echo", "tea", "--metadata", "perdure.schedule=tea").want(exit.BadUsage, "is the runtime's own")
		p.run("", "schedules", "run", "tea", "--key", "k").want(exit.OK)
		for line := range strings.Lines(p.run("", "schedules", "add", "--help").want(exit.OK).out) {
			if len(line) > 100 && !strings.HasPrefix(line, " ") { // flags and examples are to be pasted
				t.Errorf("a long line in the help: %s", line)
			}
		}
		p.run("", "schedules", "pause", "tea").want(exit.OK, "paused")
		p.run("", "schedules", "show", "tea").want(exit.OK, "started by hand, thread ", "perdure schedules resume")
		p.run("", "schedules", "resume", "tea").want(exit.OK, "active")
		p.run("", "schedules", "remove", "tea").want(exit.OK)
		p.run("", "schedules", "show", "tea").want(exit.NotFound, "schedules list")
	})
}

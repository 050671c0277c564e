package cli

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/api"
	"github.com/perdure/perdure/cli/internal/exit"
	"github.com/perdure/perdure/cli/internal/link"
	"github.com/perdure/perdure/internal/terminal"
)

// TestRetentionCommands shows what is kept, and says that a failure was seen.
func TestRetentionCommands(t *testing.T) {
	both(t, func(t *testing.T, p *place) {
		p.run("", "run", "echo", "tea", "--thread", "t").want(exit.OK)
		p.run("", "retention").want(exit.OK, "there are no rules")
		p.run("", "retention", "due").want(exit.OK, "nothing would go now")
		p.run("", "seen", "t").want(exit.Conflict, "has not failed")
		p.run("", "seen", "none").want(exit.NotFound)
	})
}

// TestRetentionSaysAllOfIt prints why threads stay to where there is no screen: whole.
func TestRetentionSaysAllOfIt(t *testing.T) {
	var out buffer
	a := testApp(terminal.Terminal{Out: &out})
	report := &api.Retention{RetentionStatus: perdure.RetentionStatus{Begun: time.Now(), Skipped: map[string]int{perdure.RetentionUnseen: 3}}}
	if err := a.retention(report); err != nil || !strings.Contains(out.String(), "stay for now: 3, failed and nobody has seen them; perdure seen THREAD says so\n") {
		t.Errorf("%v: %s", err, out.String())
	}
}

// TestKeepFlags reads flags and files of rules.
func TestKeepFlags(t *testing.T) {
	file := filepath.Join(t.TempDir(), "rules.json")
	for _, c := range []struct {
		keepFlags
		file, archive string
		want          []perdure.Retention
		refused       string
	}{
		{keepFlags: keepFlags{keep: "30d", keepArchived: "365d"}, want: []perdure.Retention{{Keep: 720 * time.Hour}}},
		{keepFlags: keepFlags{keep: "0s", keepArchived: "forever"}, archive: "file:x", want: []perdure.Retention{{Archive: true}}},
		{keepFlags: keepFlags{keep: "forever", keepArchived: "1d"}, archive: "file:x", want: []perdure.Retention{{Forever: true, KeepArchived: 24 * time.Hour}}},
		{keepFlags: keepFlags{keep: "1h", keepArchived: "1d"}, file: `[{"tenant":"acme","flow":"chat","keep":"7d","unseen":true},{"keep":"forever"}]`,
			want: []perdure.Retention{{Tenant: "acme", Flow: "chat", Keep: 168 * time.Hour, Unseen: true}, {Forever: true}, {Keep: time.Hour}}},
		{keepFlags: keepFlags{keep: "soon"}, refused: `"soon" is not a time`},
		{keepFlags: keepFlags{keep: "1h", rate: -1}, refused: "--retention-rate"},
		{keepFlags: keepFlags{keep: "1h"}, file: `[{"keep":"7d","archive":true}]`, refused: "use --archive URL"},
		{keepFlags: keepFlags{keep: "1h"}, file: `[{"kep":"7d"}]`, refused: `unknown field "kep"`},
		{keepFlags: keepFlags{keep: "1h"}, file: `[{"flow":"x"}]`, refused: "rule 1: keep:"},
		{keepFlags: keepFlags{keep: "1h"}, file: `[{"keep":"7d","keep":"forever"}]`, refused: `"keep"`},
		{keepFlags: keepFlags{keep: "1h"}, file: `[{"default":true,"keep":"7d"}]`, want: []perdure.Retention{{Default: true, Keep: 168 * time.Hour}, {Keep: time.Hour}}},
		{keepFlags: keepFlags{keep: "1h"}, file: `[] []`, refused: "more than one"},
	} {
		if c.file != "" {
			if err := os.WriteFile(file, []byte(c.file), 0o600); err != nil {
				t.Fatal(err)
			}
			c.keepFlags.file = file
		}
		a := &app{conn: &link.Connector{Archive: c.archive}}
		var o perdure.Options
		err := c.keepFlags.options(a, &o)
		if c.refused != "" {
			if err == nil || !strings.Contains(err.Error(), c.refused) {
				t.Errorf("%+v: %v does not say %q", c.keepFlags, err, c.refused)
			}
			continue
		}
		if err != nil || len(o.Retention) != len(c.want) {
			t.Errorf("%+v: %+v, %v", c.keepFlags, o.Retention, err)
			continue
		}
		for i := range c.want {
			if o.Retention[i] != c.want[i] {
				t.Errorf("rule %d is %+v, want %+v", i, o.Retention[i], c.want[i])
			}
		}
	}
}

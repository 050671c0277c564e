package cli

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/perdure/perdure/cli/internal/exit"
	"github.com/perdure/perdure/internal/terminal"
)

func TestHintsCanBePastedIntoAShell(t *testing.T) {
	for _, x := range []struct{ id, store, want string }{
		{"trip-7", "", "perdure show trip-7 -f"},
		{"trip-7", "sqlite:my db", "perdure show trip-7 -f --store 'sqlite:my db'"},
		{"$(reboot)", "", "perdure show '$(reboot)' -f"},
		{"a;b", "", "perdure show 'a;b' -f"},
		{"Ann's", "", `perdure show 'Ann'\''s' -f`},
		{"日本 語", "", "perdure show '日本 語' -f"},
		{"-x", "", "perdure show -f -- -x"},
		{"-x", "file:d", "perdure show -f --store file:d -- -x"},
		{"", "", "perdure show '' -f"},
	} {
		a := testApp(terminal.Terminal{})
		a.conn.Store = x.store
		if got := a.command("show", "-f", x.id); got != x.want {
			t.Errorf("%q: it is %s, not %s", x.id, got, x.want)
		}
	}
}

func TestErrorsOfFilesAreNoUnreachableServers(t *testing.T) {
	_, err := os.ReadFile(filepath.Join(t.TempDir(), "none", "none"))
	if got := exit.Code(err); got != exit.Failed {
		t.Errorf("%v ends with %d", err, got)
	}
}

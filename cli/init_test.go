package cli

import (
	"testing"
)

// TestModuleNames come from the names of folders.
func TestModuleNames(t *testing.T) {
	for folder, want := range map[string]string{"desk": "desk", "My Desk": "my-desk", "...": "agent", "func": "agent", "ärger": "rger", "a_b-c": "a_b-c"} {
		if got := moduleName(folder); got != want || !modulePath.MatchString(got) {
			t.Errorf("%q makes %q, want %q", folder, got, want)
		}
	}
	for version, want := range map[string]bool{"v1.2.3": true, "v0.1.0-rc.1": true, "(devel)": false, "v0.0.0-20260101000000-0123456789ab": false, "v1.2.3+dirty": false, "": false} {
		if release.MatchString(version) != want {
			t.Errorf("%q: %v", version, !want)
		}
	}
}

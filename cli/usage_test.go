package cli

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"github.com/perdure/perdure/api"
	"github.com/perdure/perdure/cli/internal/exit"
)

func TestUsageIsShown(t *testing.T) {
	both(t, func(t *testing.T, p *place) {
		p.run("", "run", "echo", "x", "--thread", "t").want(exit.OK)
		p.run("", "usage").want(exit.OK, "threads that are succeeded", "bytes of uploads", "runs at a time")
		var u api.Usage
		if err := json.Unmarshal([]byte(p.run("", "usage", "--json").want(exit.OK).out), &u); err != nil || u.Threads != 1 || u.Runs != 1 || u.Bytes == 0 {
			t.Errorf("%v %+v", err, u)
		}
	})
}

func TestServeRefusesBadQuotas(t *testing.T) {
	p := stored(t)
	p.run("", "serve", "--quota", "thread=1").want(exit.BadUsage, "there is no quota")
	p.run("", "serve", "--quota", "threads=-1").want(exit.BadUsage, "at least 1")
	p.run("", "serve", "--max-upload", "-1").want(exit.BadUsage, "--max-upload")
	bad := filepath.Join(t.TempDir(), "quotas.json")
	if err := os.WriteFile(bad, []byte(`{"acme": 1}`), 0o600); err != nil {
		t.Fatal(err)
	}
	p.run("", "serve", "--quota-file", bad).want(exit.BadUsage, "quota file", "object")
}

package main

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// TestDevIsForItsUser calls dev as its own user and as another one.
func TestDevIsForItsUser(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root can become another user")
	}
	data, err := os.ReadFile(os.Args[0])
	if err != nil {
		t.Fatal(err)
	}
	dir, err := os.MkdirTemp("", "perdure-other-") // unlike t.TempDir, others may enter it
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(dir)
	program := filepath.Join(dir, "caller")
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(program, data, 0o755); err != nil {
		t.Fatal(err)
	}
	as := func(uid uint32, address, token string) string {
		c := exec.Command(program)
		c.Env = []string{beCaller + "=" + address + "/v1/threads", "PERDURE_TOKEN=" + token}
		c.Dir = dir
		c.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uid, Gid: uid}}
		out, err := c.CombinedOutput()
		if err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		return string(out)
	}

	p, address := dev(t, t.TempDir())
	secret := secretOf(t, address)
	for _, c := range []struct {
		uid         uint32
		token, want string
	}{{0, "", "200 OK"}, {65534, "", "401 Unauthorized"}, {65534, "wrong", "401 Unauthorized"}, {65534, secret, "200 OK"}} {
		if got := as(c.uid, address, c.token); got != c.want {
			t.Errorf("user %d with the token %q gets %s, want %s", c.uid, c.token, got, c.want)
		}
	}
	p.signal(syscall.SIGTERM).ends(0)
	if _, err := os.Stat(recordOf(address)); err == nil {
		t.Error("the record of dev is still there")
	}

	p = launch(t, t.TempDir(), nil, "dev", "--addr", "127.0.0.1:0", "--open")
	line := p.until("Perdure serves http://")
	address, _, _ = strings.Cut(line[strings.Index(line, "http://"):], ",")
	if got := as(65534, address, ""); got != "200 OK" {
		t.Errorf("with --open another user gets %s", got)
	}
	p.signal(syscall.SIGTERM).ends(0)
}

func recordOf(address string) string {
	return filepath.Join(state, "perdure", "dev", strings.ReplaceAll(strings.TrimPrefix(address, "http://"), ":", "-")+".json")
}

// secretOf returns the secret that dev keeps for its owner, and only for them.
func secretOf(t *testing.T, address string) string {
	t.Helper()
	data, err := os.ReadFile(recordOf(address))
	if err != nil {
		t.Fatal(err)
	}
	if info, err := os.Stat(recordOf(address)); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the record of dev has the mode %v, %v", info.Mode(), err)
	}
	var record struct{ Secret string }
	if err := json.Unmarshal(data, &record); err != nil || record.Secret == "" {
		t.Fatalf("the record of dev is %s, %v", data, err)
	}
	return record.Secret
}

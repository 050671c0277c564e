//go:build linux

package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// network is three network namespaces on a bridge: machines that can be cut off from
// each other, but not from the test.
type network struct{ names, ips []string }

// ip runs the command of that name.
func ip(t *testing.T, args ...string) {
	t.Helper()
	if out, err := exec.Command("ip", args...).CombinedOutput(); err != nil {
		t.Fatalf("ip %s: %v\n%s", strings.Join(args, " "), err, out)
	}
}

func newNetwork(t *testing.T) *network {
	t.Helper()
	missing := ""
	if _, err := exec.LookPath("ip"); err != nil {
		missing = "there is no program ip (package iproute2)"
	} else if os.Getuid() != 0 {
		missing = "only root can make network namespaces"
	}
	if missing != "" && os.Getenv("CI") == "true" {
		t.Fatal(missing)
	} else if missing != "" {
		t.Skip(missing)
	}
	id := os.Getpid() % 60000
	subnet := fmt.Sprintf("10.%d.%d.", 200+id/256%50, id%256)
	bridge := fmt.Sprintf("pdb%d", id)
	ip(t, "link", "add", bridge, "type", "bridge")
	t.Cleanup(func() { ip(t, "link", "del", bridge) })
	ip(t, "addr", "add", subnet+"254/24", "dev", bridge)
	ip(t, "link", "set", bridge, "up")
	n := &network{}
	for i := range 3 {
		name, inside, outside := fmt.Sprintf("pdn%d-%d", id, i), fmt.Sprintf("pdi%d-%d", id, i), fmt.Sprintf("pdo%d-%d", id, i)
		ip(t, "netns", "add", name)
		t.Cleanup(func() { ip(t, "netns", "del", name) })
		ip(t, "link", "add", outside, "type", "veth", "peer", "name", inside, "netns", name)
		ip(t, "link", "set", outside, "master", bridge, "up")
		own := fmt.Sprint(subnet, i+1)
		ip(t, "-n", name, "addr", "add", own+"/24", "dev", inside)
		ip(t, "-n", name, "link", "set", inside, "up")
		ip(t, "-n", name, "link", "set", "lo", "up")
		n.names, n.ips = append(n.names, name), append(n.ips, own)
	}
	return n
}

// cut cuts a machine off from the others, or joins it again.
func (n *network) cut(t *testing.T, i int, off bool) {
	t.Helper()
	verb := map[bool]string{true: "add", false: "del"}[off]
	for j := range n.ips {
		if j != i {
			ip(t, "-n", n.names[i], "route", verb, "blackhole", n.ips[j]+"/32")
		}
	}
}

// TestPartition cuts machines off, one after the other. The others go on; it acknowledges
// nothing meanwhile, and takes part again afterwards.
func TestPartition(t *testing.T) {
	n := newNetwork(t)
	dir := t.TempDir()
	secret := filepath.Join(dir, "secret")
	if err := os.WriteFile(secret, []byte("a secret of some length\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	var join []string
	for _, a := range n.ips {
		join = append(join, a+":7374")
	}
	var all []*machine
	for i, a := range n.ips {
		folder := filepath.Join(dir, fmt.Sprint("node", i))
		all = append(all, newMachine(t, &machine{api: "http://" + a + ":7373", node: join[i], log: folder + ".log", namespace: n.names[i], args: []string{"serve",
			"--cluster", "test", "--join", strings.Join(join, ","), "--node", join[i], "--dir", folder, "--cluster-secret-file", secret,
			"--addr", a + ":7373", "--auth", "none", "--insecure", "--host", "*"}}))
		all[i].start(t)
	}
	for _, m := range all {
		m.ready(t, 200)
	}
	load := newLoad(t, all, 4)
	for i, m := range all[:turns()] {
		n.cut(t, i, true)
		load.more(t, "a machine was cut off")
		bounded, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
		if ok, said := m.begin(bounded, fmt.Sprint("alone-", i)); ok {
			t.Errorf("a machine that was cut off has acknowledged a start: %s", said)
		}
		cancel()
		m.ready(t, 503)
		n.cut(t, i, false)
		m.ready(t, 200)
		load.more(t, "a machine is back")
	}
	load.check(t)
}

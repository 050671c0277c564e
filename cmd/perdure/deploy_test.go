//go:build unix

package main

import (
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/npm"
	"go.yaml.in/yaml/v3"
)

// deployed is how a file of deploy starts the program.
type deployed struct {
	file, name string
	args       []string
	port       string // that the file says it listens on; empty: none
	probes     []string
}

func deployFile(t *testing.T, name string) string {
	t.Helper()
	data, err := os.ReadFile(filepath.Join("..", "..", "deploy", name))
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

// pod is what Kubernetes runs.
type pod struct {
	Kind     string
	Metadata struct{ Name string }
	Spec     struct {
		Template struct {
			Spec struct {
				SecurityContext struct {
					RunAsUser int `yaml:"runAsUser"`
				} `yaml:"securityContext"`
				Containers []struct {
					Args  []string
					Env   []envVar
					Ports []struct {
						ContainerPort string `yaml:"containerPort"`
					}
					ReadinessProbe  probe `yaml:"readinessProbe"`
					LivenessProbe   probe `yaml:"livenessProbe"`
					SecurityContext struct {
						RunAsUser int `yaml:"runAsUser"`
					} `yaml:"securityContext"`
				}
			}
		}
	}
}

type envVar struct {
	Name      string
	ValueFrom struct {
		SecretKeyRef secretKey `yaml:"secretKeyRef"`
	} `yaml:"valueFrom"`
}

type secretKey struct {
	Name, Key string
	Optional  bool
}

type probe struct {
	HTTPGet struct{ Path string } `yaml:"httpGet"`
}

// everyDeployment returns all command lines in the files of deploy.
func everyDeployment(t *testing.T) []deployed {
	t.Helper()
	var all []deployed

	settings := deployFile(t, "systemd/perdure.env")
	for _, name := range []string{"systemd/perdure.service", "systemd/perdure-worker@.service"} {
		unit := deployFile(t, name)
		m := regexp.MustCompile(`(?m)^ExecStart=/usr/bin/perdure (\w+) (.*)\$(\w+)$`).FindStringSubmatch(unit)
		if m == nil {
			t.Fatalf("%s has no ExecStart", name)
		}
		// The flags of the unit itself, and those that the settings propose.
		flags := regexp.MustCompile(`(?m)^(?:Environment="?|#)`+m[3]+`=([^"\n]*)`).FindAllStringSubmatch(unit+"\n"+settings, -1)
		if len(flags) != 2 {
			t.Fatalf("%s has %d values of %s", name, len(flags), m[3])
		}
		for _, f := range flags {
			all = append(all, deployed{file: name, name: m[1], args: append([]string{m[1]}, strings.Fields(m[2]+f[1])...)})
		}
	}

	docker := deployFile(t, "Dockerfile")
	var args []string
	if m := regexp.MustCompile(`(?m)^CMD (.*)$`).FindStringSubmatch(docker); m == nil || json.Unmarshal([]byte(m[1]), &args) != nil {
		t.Fatal("the Dockerfile has no CMD")
	}
	expose := regexp.MustCompile(`(?m)^EXPOSE (\d+)$`).FindStringSubmatch(docker)
	all = append(all, deployed{file: "Dockerfile", name: "CMD", args: args, port: expose[1]})

	var compose struct {
		Services map[string]struct {
			Command []string
			Ports   []string
		}
	}
	if err := yaml.Unmarshal([]byte(deployFile(t, "compose.yaml")), &compose); err != nil {
		t.Fatal(err)
	}
	for name, s := range compose.Services {
		if s.Command == nil {
			continue // PostgreSQL
		}
		d := deployed{file: "compose.yaml", name: name, args: s.Command}
		if len(s.Ports) > 0 {
			d.port = s.Ports[0][strings.LastIndex(s.Ports[0], ":")+1:]
		}
		all = append(all, d)
	}

	pods := yaml.NewDecoder(strings.NewReader(deployFile(t, "kubernetes/perdure.yaml")))
	for {
		var p pod
		if err := pods.Decode(&p); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatal(err)
		}
		for _, c := range p.Spec.Template.Spec.Containers {
			all = append(all, deployed{file: "kubernetes/perdure.yaml", name: p.Metadata.Name, args: c.Args, port: c.Ports[0].ContainerPort,
				probes: []string{c.ReadinessProbe.HTTPGet.Path, c.LivenessProbe.HTTPGet.Path}})
			for name, key := range map[string]string{"PERDURE_STORE": "store", "PERDURE_KEYS": "keys"} {
				if i := slices.IndexFunc(c.Env, func(e envVar) bool { return e.Name == name }); i < 0 || c.Env[i].ValueFrom.SecretKeyRef != (secretKey{"perdure", key, key == "keys"}) {
					t.Errorf("%s does not get %s from the secret", p.Metadata.Name, name)
				}
			}
			if user := c.SecurityContext.RunAsUser; user == 0 || !strings.Contains(docker, fmt.Sprintf("\nUSER %d:", user)) {
				t.Errorf("%s runs as user %d, the image as another", p.Metadata.Name, user)
			}
		}
	}
	for _, d := range all {
		if d.args[0] == "serve" && d.port == "" && !strings.HasPrefix(d.file, "systemd/") {
			t.Errorf("%s: %s opens no port", d.file, d.name)
		}
	}
	if len(all) != 9 {
		t.Fatalf("found %d command lines: %+v", len(all), all)
	}
	return all
}

// TestDeployFilesFitTheProgram: the program knows every flag in the files of deploy, and
// listens where they say.
func TestDeployFilesFitTheProgram(t *testing.T) {
	dir := t.TempDir()
	known := func(args []string) int { return launch(t, dir, nil, append(args, "--help")...).end() }
	if known([]string{"serve", "--no-such-flag"}) != 2 {
		t.Fatal("an unknown flag is not refused, so this test shows nothing")
	}
	for _, d := range everyDeployment(t) {
		if code := known(d.args); code != 0 {
			t.Errorf("%s: perdure %q exits with %d", d.file, d.args, code)
		}
		m := regexp.MustCompile(`--addr \S*:(\d+)`).FindStringSubmatch(strings.Join(d.args, " "))
		if d.port != "" && (m == nil || m[1] != d.port) {
			t.Errorf("%s: %s listens on %q, and port %s is open", d.file, d.name, m, d.port)
		}
	}
}

// TestDeployedPodsDrain runs the pods of Kubernetes on one store: their probes answer, and
// one that gets SIGTERM in the middle of a run ends in order and hands the run over.
func TestDeployedPodsDrain(t *testing.T) {
	dir := t.TempDir()
	var address string
	workers := map[string]*process{}
	pods := 0
	for _, d := range everyDeployment(t) {
		if d.probes == nil {
			continue
		}
		args := append(d.args, "--store", "sqlite:"+filepath.Join(dir, "s.db"), "--addr", "127.0.0.1:0", "--auth", "none")
		count := 1
		if d.name == "perdure-worker" {
			count = 2
		}
		for range count {
			pods++
			p := launch(t, dir, []string{"PERDURE_PACE=20ms"}, args...)
			at := p.err.find(t, serving)
			if d.name == "perdure-worker" {
				workers[at] = p
			} else {
				address = at
			}
			for _, path := range d.probes {
				r, err := http.NewRequestWithContext(t.Context(), "GET", at+path, nil)
				if err != nil {
					t.Fatal(err)
				}
				r.Host = "10.1.2.3:7373" // probes call a pod by its address
				resp, err := http.DefaultClient.Do(r)
				if err != nil || resp.StatusCode != 200 {
					t.Fatalf("%s: %s answers %v, %v", d.name, path, resp, err)
				}
				resp.Body.Close()
			}
		}
	}
	if pods != 3 || address == "" {
		t.Fatalf("%d pods, and a server at %q", pods, address)
	}

	thread := begin(t, address)
	var pass uint64
	follow(t, address, thread, deltas(5, &pass))
	drained := 0
	for _, p := range workers { // one of them executes the run
		if !strings.Contains(p.err.String(), "run claimed") {
			continue
		}
		drained++
		p.signal(syscall.SIGTERM).ends(0)
		if log := p.err.String(); !strings.Contains(log, "run released") || !strings.Contains(log, "msg=stopped") || strings.Contains(log, "lost") {
			t.Errorf("it did not hand over the run and end in order: %s", log)
		}
		break
	}
	if drained != 1 {
		t.Fatal("no pod executes the run")
	}
	run := status(t, address, thread, perdure.Suspended)
	approve(t, address, run)
	status(t, address, thread, perdure.Succeeded)
}

// TestUnitsAreGoodForSystemd asks systemd itself, which has to be installed but need not
// run: the units have no mistakes, and expose little.
func TestUnitsAreGoodForSystemd(t *testing.T) {
	analyze, err := exec.LookPath("systemd-analyze")
	if err != nil {
		if os.Getenv("CI") == "true" {
			t.Fatal(err)
		}
		t.Skip("systemd is not installed")
	}
	verify := func(name, unit string) (string, error) {
		file := filepath.Join(t.TempDir(), name)
		if err := os.WriteFile(file, []byte(unit), 0o600); err != nil {
			t.Fatal(err)
		}
		out, err := exec.CommandContext(t.Context(), analyze, "verify", "--man=no", file).CombinedOutput()
		if err != nil || strings.Contains(string(out), file) {
			return string(out), errors.Join(errors.New("systemd-analyze verify complains"), err)
		}
		// 2.0 is what it calls OK, in tenths; an unprotected service has 96.
		out, err = exec.CommandContext(t.Context(), analyze, "security", "--no-pager", "--offline=true", "--threshold=20", file).CombinedOutput()
		return string(out), err
	}
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	for name, as := range map[string]string{"perdure.service": "perdure.service", "perdure-worker@.service": "perdure-worker@1.service"} {
		// The program and its user are not on this machine.
		unit := strings.ReplaceAll(deployFile(t, "systemd/"+name), "=/usr/bin/perdure ", "="+exe+" ")
		unit = regexp.MustCompile(`(?m)^(User|Group)=perdure$`).ReplaceAllString(unit, "$1=daemon")
		if out, err := verify(as, unit); err != nil {
			t.Errorf("%s: %v\n%s", name, err, out)
		}
		if _, err := verify(as, strings.Replace(unit, "Restart=on-failure", "Restart=perhaps", 1)); err == nil {
			t.Errorf("%s: a mistake is not found, so this test shows nothing", name)
		}
		bare := regexp.MustCompile(`(?m)^(Capability|Lock|Memory|NoNew|Private|Protect|Remove|Restrict[A-Z]|SystemCall)\w*=.*\n`).ReplaceAllString(unit, "")
		if _, err := verify(as, bare); err == nil {
			t.Errorf("%s: an unprotected unit is not found, so this test shows nothing", name)
		}
	}
}

//go:embed testdata/dockerfile/package.json
var linterManifest []byte

//go:embed testdata/dockerfile/package-lock.json
var linterLock []byte

// TestDockerfileIsGoodForALinter that others wrote. Nothing builds it here.
func TestDockerfileIsGoodForALinter(t *testing.T) {
	script, err := npm.Install("dockerfile-utils", linterManifest, linterLock, "dockerfile-utils", "bin", "dockerfile-utils")
	if err != nil {
		if os.Getenv("CI") == "true" {
			t.Fatalf("the linter cannot run: %v", err)
		}
		t.Skipf("skipped, because the linter cannot run: %v", err)
	}
	lint := func(text string) (string, error) {
		file := filepath.Join(t.TempDir(), "Dockerfile")
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		out, err := exec.CommandContext(t.Context(), "node", script, "lint", file).CombinedOutput()
		return string(out), err
	}
	good := deployFile(t, "Dockerfile")
	if out, err := lint(good); err != nil || out != "" {
		t.Errorf("%v\n%s", err, out)
	}
	if _, err := lint(strings.Replace(good, "EXPOSE 7373", "EXPOSE seven", 1)); err == nil {
		t.Error("a mistake is not found, so this test shows nothing")
	}
}

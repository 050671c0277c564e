package proof_test

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/perdure/perdure/internal/journal"
	"github.com/perdure/perdure/internal/kit"
	"github.com/perdure/perdure/internal/natstest"
	"github.com/perdure/perdure/internal/pgtest"
	"github.com/perdure/perdure/internal/redistest"
	"github.com/perdure/perdure/internal/s3test"
	"github.com/perdure/perdure/store"
	_ "github.com/perdure/perdure/store/filestore"
	"github.com/perdure/perdure/store/memstore"
	_ "github.com/perdure/perdure/store/natsstore"
	_ "github.com/perdure/perdure/store/pgstore"
	_ "github.com/perdure/perdure/store/redisstore"
	_ "github.com/perdure/perdure/store/s3store"
	_ "github.com/perdure/perdure/store/sqlitestore"
)

// TestKill has a real process execute flows, kills it at random moments as
// kill -9 does, and starts it again until the flows end. Then their results
// are right and each step is recorded once.
func TestKill(t *testing.T) {
	kills := kit.Sized(8, 300, 1000)
	for _, scheme := range []string{"sqlite", "file", "postgres", "redis", "nats", "s3"} {
		t.Run(scheme, func(t *testing.T) {
			if text := os.Getenv(killEnv); text != "" {
				var order killOrder
				if err := json.Unmarshal([]byte(text), &order); err != nil || order.Test != t.Name() {
					t.Skipf("this process is a child of another test: %s=%s (%v)", killEnv, text, err)
				}
				killChild(order)
			}
			t.Parallel() // children spend most of their time in waiting for their predecessor's lease
			dir := t.TempDir()
			k := &killer{T: t, dir: dir, url: scheme + ":" + filepath.Join(dir, "store"), seed: rand.Uint64()}
			switch scheme {
			case "postgres":
				k.url = pgtest.Schema(pgtest.URL(t), dir)
			case "redis":
				k.url = redistest.Prefix(redistest.URL(t), dir)
			case "nats":
				k.url = natstest.Stream(natstest.URL(t), dir)
			case "s3":
				k.url = s3test.URL(t, dir)
			}
			k.rng = rand.New(rand.NewPCG(k.seed, 0))
			defer func() { t.Log(k) }()
			k.killUntil(kills, (kills+2)/3)
			k.check()
		})
	}
}

// killLanes is how many threads a child executes at a time.
const killLanes = 2

// killer is the parent of all lives.
type killer struct {
	*testing.T
	dir, url string
	seed     uint64
	rng      *rand.Rand

	lives, kills, early int // early are the kills of children that were not up, which do not count
	inside              int // kills with a step in progress
	threads             int
	quarantined         int
	resumes             int
	again               int   // steps that were started again
	read                int64 // how far the world was looked at
}

func (k *killer) String() string {
	return fmt.Sprintf("seed %d: %d kills, %d of them with a step in progress, and %d before the worker was up, in %d lives; %d threads were resumed %d times, %d steps started again, %d runs were quarantined",
		k.seed, k.kills, k.inside, k.early, k.lives, k.threads, k.resumes, k.again, k.quarantined)
}

// killUntil kills until there were so many kills, and so many with a step in
// progress, and then lets the last threads end.
func (k *killer) killUntil(kills, inside int) {
	var batch []int
	for len(batch) > 0 || k.kills < kills || k.inside < inside {
		if k.lives > 3*kills+100 {
			k.Fatal("too many lives")
		}
		if len(batch) == 0 {
			for range killLanes {
				k.threads++
				batch = append(batch, k.threads)
			}
		}
		if ended := k.live(batch, k.kills < kills || k.inside < inside); ended {
			batch = nil
		}
	}
}

// killAim says when a child is killed.
type killAim struct {
	opening bool          // from when it begins to open the store; else from when its worker starts
	lines   int           // and then from when it has written so many lines to the world
	after   time.Duration // and then after so long
}

func (k *killer) aim() killAim {
	upTo := func(d time.Duration) time.Duration { return time.Duration(k.rng.Int64N(int64(d))) }
	switch dice := k.rng.IntN(10); {
	case dice == 0: // while it opens the store or claims
		return killAim{opening: true, after: upTo(50 * time.Millisecond)}
	case dice <= 2: // also while all its runs wait
		return killAim{after: upTo(150 * time.Millisecond)}
	}
	return killAim{lines: 1 + k.rng.IntN(40), after: upTo(4 * time.Millisecond)}
}

// live runs a child until its threads end, or until it is killed if it is to
// be, and reports whether they ended.
func (k *killer) live(threads []int, mortal bool) (ended bool) {
	k.lives++
	target := k.aim()
	cmd, lines, stderr := k.child(threads)
	hit := make(chan error, 1)
	var shot *time.Timer
	shoot := func() { shot = time.AfterFunc(target.after, func() { hit <- cmd.Process.Kill() }) }
	up, said, failed := false, 0, ""
	var other []string
	for lines.Scan() {
		text, ok := strings.CutPrefix(lines.Text(), killMark)
		switch what, rest, _ := strings.Cut(text, " "); {
		case !ok:
			other = append(other, lines.Text())
		case what == "fail":
			failed = rest
		case what == "ended":
			ended = true
		case what == "quarantined":
			k.quarantined++
		case what == "up":
			up = true
		case what == "line":
			said++
		}
		if mortal && shot == nil && (target.opening || up && said >= target.lines) {
			shoot()
		}
	}
	killed := shot != nil && !shot.Stop() && <-hit == nil
	err := cmd.Wait()
	if failed != "" || strings.Contains(stderr.String(), "DATA RACE") || !killed && !ended {
		k.Fatalf("the child failed: %s (%v)\n%s\n%s", failed, err, strings.Join(other, "\n"), stderr)
	}
	cut := k.cut()
	switch {
	case ended || cmd.ProcessState.ExitCode() == 0: // the kill came too late
	case !up:
		k.early++
	default:
		k.kills++
		if cut > 0 {
			k.inside++
		}
	}
	return ended
}

// child starts a child and returns what it says.
func (k *killer) child(threads []int) (*exec.Cmd, *bufio.Scanner, *bytes.Buffer) {
	order, err := json.Marshal(killOrder{Test: k.Name(), URL: k.url, Dir: k.dir, Life: k.lives, Threads: threads})
	if err != nil {
		k.Fatal(err)
	}
	parts := strings.Split(k.Name(), "/")
	for i, p := range parts {
		parts[i] = "^" + regexp.QuoteMeta(p) + "$"
	}
	stderr := new(bytes.Buffer)
	cmd := exec.CommandContext(k.Context(), os.Args[0], "-test.run="+strings.Join(parts, "/"), "-test.count=1", "-test.timeout=5m")
	cmd.Env = append(os.Environ(), killEnv+"="+string(order), "GORACE=atexit_sleep_ms=0")
	cmd.Stderr = stderr
	stdin, err := cmd.StdinPipe() // is closed when this process dies, which the child sees
	if err != nil {
		k.Fatal(err)
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		k.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		k.Fatal(err)
	}
	k.Cleanup(func() { stdin.Close() })
	return cmd, bufio.NewScanner(stdout), stderr
}

// world returns what the steps wrote to the world behind an offset.
func (k *killer) world(offset int64) ([]killLine, int64) {
	lines, end, err := readKillWorld(k.dir, offset, "")
	if err != nil && !os.IsNotExist(err) {
		k.Fatal(err)
	}
	return lines, end
}

// cut returns how many steps the last life started and did not end.
func (k *killer) cut() (open int) {
	lines, end := k.world(k.read)
	k.read = end
	for _, l := range lines {
		switch l.what {
		case killStart:
			open++
		case killEnd:
			open--
		}
	}
	return open
}

// killRecord is what the journal of a thread says.
type killRecord struct {
	once    []string       // kind and path of each entry that must be there once, sorted
	notDone map[string]int // starts of at-most-once steps, by path, that certainly had no effect
	resumes int
	output  killOutput
}

// records reads all journals of a store and demands that their hashes are
// right and that no worker wrote after another took over.
func (k *killer) records(s store.Store) map[string]*killRecord {
	all := map[string]*killRecord{}
	for name, err := range s.Journals(k.Context(), "") {
		if err != nil {
			k.Fatal(err)
		}
		entries, err := store.ReadAll(k.Context(), s, name, 0)
		if err != nil {
			k.Fatal(err)
		}
		thread, r := journal.NewThread(), &killRecord{notDone: map[string]int{}}
		for _, line := range entries {
			claimed := thread.Epoch
			e, err := thread.Read(line.Seq, line.Data)
			if err != nil {
				k.Fatalf("entry %d of thread %s: %v", line.Seq, thread.ID, err)
			}
			if !e.Kind.Open() && e.Kind != journal.Claimed && e.Epoch != claimed {
				k.Errorf("entry %d of thread %s is a %s of epoch %d behind the claim of epoch %d", e.Seq, thread.ID, e.Kind, e.Epoch, claimed)
			}
			if err := r.note(e); err != nil {
				k.Fatalf("entry %d of thread %s: %v", line.Seq, thread.ID, err)
			}
		}
		slices.Sort(r.once)
		if all[thread.ID] != nil || len(thread.Runs) != 1 {
			k.Fatalf("thread %q has %d runs, or two journals", thread.ID, len(thread.Runs))
		}
		run := thread.Runs[0]
		if run.Status != journal.StatusSucceeded {
			k.Errorf("thread %s is %s", thread.ID, run.Status)
		}
		if err := json.Unmarshal(run.Output.JSON, &r.output); err != nil {
			k.Errorf("output of thread %s: %v", thread.ID, err)
		}
		r.resumes = run.Claims - 1
		all[thread.ID] = r
	}
	return all
}

// note takes an entry in. Those that a kill may double, or make necessary, are
// not among those that are there once.
func (r *killRecord) note(e journal.Entry) error {
	b, err := e.Read()
	if err != nil {
		return err
	}
	switch e.Kind {
	case journal.Claimed, journal.Suspended, journal.Intent, journal.Problem, journal.Dumped, journal.Nudge,
		journal.Waiting, journal.Received, journal.Retried, journal.Quarantined:
	case journal.Attempt:
		if b.NotDone {
			r.notDone[e.Path]++
		}
	case journal.Asked, journal.Answered:
		if killOnce(e.Path) { // about its outcome
			break
		}
		fallthrough
	default:
		path := e.Path
		if e.Kind == journal.Signal {
			path = "" // it is that of the receiver, if that was first
		}
		r.once = append(r.once, string(e.Kind)+" "+path)
	}
	return nil
}

// check compares all threads with one that was never killed.
func (k *killer) check() {
	s, err := store.Open(k.Context(), k.url)
	if err != nil {
		k.Fatal(err)
	}
	defer s.Close()
	got := k.records(s)
	if len(got) != k.threads {
		k.Errorf("%d of %d threads have a journal", len(got), k.threads)
	}
	want, leaves := k.oracle()
	for n := range k.threads {
		id := killThread(n + 1)
		r := got[id]
		if r == nil {
			k.Errorf("thread %s has no journal", id)
			continue
		}
		k.resumes += r.resumes
		if d := cmp.Diff(want.once, r.once); d != "" {
			k.Errorf("thread %s has other entries than one that was not killed (-want +got):\n%s", id, d)
		}
		output := killOutput{Answer: 40 + n + 1, News: "sunny"}
		for _, path := range leaves {
			output.Sum += killValue(n+1, path)
			if !killOnce(path) {
				output.Counted++
			}
			if strings.HasPrefix(path, "/first-") || strings.HasPrefix(path, "/last-") {
				output.Tally++
			}
		}
		if d := cmp.Diff(output, r.output); d != "" {
			k.Errorf("thread %s has another output (-want +got):\n%s", id, d)
		}
	}
	k.effects(got, leaves)
}

// killOnce reports whether the step at a path is an at-most-once step.
func killOnce(path string) bool { return path == "/charge" || path == "/wire" }

// oracle executes a thread that is not killed, and returns what its journal
// says and the paths of its leaves.
func (k *killer) oracle() (*killRecord, []string) {
	world, err := openKillWorld(k.TempDir(), 1)
	if err != nil {
		k.Fatal(err)
	}
	defer world.file.Close()
	s := memstore.New()
	defer s.Close()
	out := &killOutside{world: world, say: func(string, ...any) {}}
	if err := out.attendAll(s, time.Second, 1); err != nil {
		k.Fatal(err)
	}
	var leaves []string
	lines, _, err := readKillWorld(filepath.Dir(world.file.Name()), 0, "")
	for _, l := range lines {
		if l.what == killEnd && !slices.Contains(leaves, l.path) {
			leaves = append(leaves, l.path)
		}
	}
	want := k.records(s)[killThread(1)]
	steps := 0
	for _, e := range want.once {
		if strings.HasPrefix(e, "step ") {
			steps++
		}
	}
	if err != nil || len(leaves) < 50 || steps != len(leaves)+1 { // and the composite
		k.Fatalf("without a kill there are %d leaves and %d steps (%v)", len(leaves), steps, err)
	}
	return want, leaves
}

// effects demands of the world that nothing was done again once it was
// recorded, and of at-most-once steps that they were done once.
func (k *killer) effects(records map[string]*killRecord, leaves []string) {
	type step struct {
		thread int
		path   string
	}
	starts, effects, keys := map[step]int{}, map[step]int{}, map[step]string{}
	inLife := map[int]map[step]int{}
	last, passed := map[step]step{}, map[step]bool{} // by frame what it started last; and what came before that
	lines, _ := k.world(0)
	for _, l := range lines {
		at := step{l.thread, l.path}
		if keys[at] == "" {
			keys[at] = l.key
		}
		if l.key != keys[at] {
			k.Errorf("step %v has the keys %s and %s", at, keys[at], l.key)
		}
		switch l.what {
		case killEffect:
			effects[at]++
		case killStart:
			if starts[at]++; starts[at] > 1 {
				k.again++
			}
			if inLife[l.life] == nil {
				inLife[l.life] = map[step]int{}
			}
			if inLife[l.life][at]++; inLife[l.life][at] > 1 && l.path != "/flaky" {
				k.Errorf("life %d started step %v twice", l.life, at)
			}
			// A frame that has started its next child has recorded the one
			// before, so that must not start again.
			for path := l.path; path != ""; {
				i := strings.LastIndexByte(path, '/')
				frame, name := step{l.thread, path[:i]}, path[i+1:]
				if strings.HasPrefix(name, "branch-") {
					name = "branches" // which run side by side
				}
				child := step{l.thread, frame.path + "/" + name}
				if before := last[frame]; before != child {
					if passed[child] {
						k.Errorf("life %d started %v in %v after its frame had come to %s", l.life, at, child, before.path)
					}
					passed[before] = true
				}
				last[frame] = child
				path = frame.path
			}
		}
	}
	for n := range k.threads {
		for _, path := range leaves {
			at := step{n + 1, path}
			once := killOnce(path)
			notDone := records[killThread(n+1)].notDone[path]
			switch {
			case starts[at] == 0:
				k.Errorf("step %v is recorded but was never started", at)
			case once && effects[at] != 1:
				k.Errorf("at-most-once step %v had its effect %d times", at, effects[at])
			case once && starts[at] > 1+notDone:
				k.Errorf("at-most-once step %v was started %d times, %d of them certainly without effect", at, starts[at], notDone)
			}
		}
	}
}

// Command peers does the same durable work with Perdure and with other programs that
// keep what agents or workflows did, and prints a table of rates and ratios. All of
// them sync their commits to the disk. Rates depend on the machine; the peers take
// turns within each round, so that the ratios can be compared.
package main

import (
	"cmp"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/perdure/perdure/internal/pgtest"
)

// measure is a column of the table.
type measure struct {
	name  string // in the head of the table
	full  string // the same elsewhere, if that is shorter
	job   job
	value func(m measured) float64
	less  bool // less is better
}

func stepRate(m measured) float64  { return float64(m.Steps-1) / m.Span }
func runRate(m measured) float64   { return float64(m.Runs) / m.Seconds }
func stepBytes(m measured) float64 { return float64(m.Bytes) / float64(m.Steps) }
func millis(m measured) float64    { return m.Seconds * 1e3 }

// measures are made in this order, of all peers before the next.
var measures = []measure{
	{"steps/s, 200 in a row", "", job{Runs: 1, Steps: 200, Clients: 1}, stepRate, false},
	{"800 in a row", "steps/s, 800 in a row", job{Runs: 1, Steps: 800, Clients: 1}, stepRate, false},
	{"50 runs × 40", "steps/s, 50 runs × 40", job{Runs: 50, Steps: 40, Clients: 50}, stepRate, false},
	{"bytes/step, runs of 50", "", job{Runs: 16, Steps: 50, Clients: 1}, stepBytes, true},
	{"of 800", "bytes/step, run of 800", job{Runs: 1, Steps: 800, Clients: 1}, stepBytes, true},
	{"runs/s, 1 client", "", job{Runs: 300, Steps: 1, Clients: 1}, runRate, false},
	{"8", "runs/s, 8 clients", job{Runs: 1200, Steps: 1, Clients: 8}, runRate, false},
	{"64", "runs/s, 64 clients", job{Runs: 2560, Steps: 1, Clients: 64}, runRate, false},
	{"resume ms", "", job{Do: "wake", Steps: 800}, millis, true},
}

// onPostgres are the measures with -postgres: 64 runs at a time, and nothing of files,
// which are the server's.
func onPostgres() []measure {
	all := slices.Clone(measures)
	all[steps50] = measure{"64 runs × 40", "steps/s, 64 runs × 40", job{Runs: 64, Steps: 40, Clients: 64}, stepRate, false}
	all[bytes50].name, all[bytes800].full = "bytes to the server/step, runs of 50", "bytes to the server/step, run of 800"
	return all
}

const (
	steps800 = 1 // numbers of measures
	steps50  = 2
	bytes50  = 3
	bytes800 = 4
	clients1 = 5
)

var (
	rounds  = flag.Int("rounds", 3, "rounds; the peers take turns in each, and medians are shown")
	seconds = flag.Float64("seconds", 2, "start no run later than this in one measurement")
	parent  = flag.String("dir", "", "folder on the disk to measure (default: a temporary one)")
	only    = flag.String("only", "", "peers to measure beside Perdure, separated by commas (default: all)")
	server  = flag.Bool("postgres", false, "measure Perdure and DBOS on one PostgreSQL server, with its default settings of durability")
	as      = flag.String("as", "", "be the process of a peer, for another peers")
)

func main() {
	flag.Parse()
	ctx := context.Background()
	if *as != "" {
		fatal(serve(ctx, *as, flag.Arg(0)))
		return
	}
	dir, err := os.MkdirTemp(*parent, "perdure-peers-")
	fatal(err)
	if *server {
		postgres, err := pgtest.Launch()
		fatal(err)
		defer postgres.Stop()
		fatal(os.Setenv(pgtest.Env, postgres.URL))
		entrants, measures = postgresEntrants, onPostgres()
	}
	table := newTable(*only)
	table.measure(ctx, dir)
	table.print()
	fatal(os.RemoveAll(dir))
}

// serve does a job in this process and prints what it measured. It does not close
// anything: a run that waits is left by a process that ends.
func serve(ctx context.Context, name, text string) error {
	all := slices.Concat(entrants, postgresEntrants)
	i := slices.IndexFunc(all, func(e entrant) bool { return e.name == name })
	if i < 0 {
		return fmt.Errorf("there is no peer %q", name)
	}
	var j job
	if err := json.Unmarshal([]byte(text), &j); err != nil {
		return err
	}
	m, err := j.work(ctx, all[i].open)
	if err != nil {
		return err
	}
	return json.NewEncoder(os.Stdout).Encode(m)
}

// row is what was measured of one peer.
type row struct {
	entrant
	version string
	values  [][]float64 // of each measure, one in each round
	round   map[job]measured
	syncs   string
	setting string
	problem string // why there are no figures
}

type table struct {
	rows []*row
	load string // of the machine at the beginning
}

// newTable has a row for Perdure and for each peer named, or for all.
func newTable(only string) *table {
	t := &table{load: load()}
	for i, e := range entrants {
		if i > 0 && only != "" && !slices.Contains(strings.Split(only, ","), e.name) {
			continue
		}
		r := &row{entrant: e, values: make([][]float64, len(measures)), syncs: "-"}
		r.version = moduleVersion(e.module)
		if e.command != nil {
			var err error
			if _, r.version, err = e.command(); err != nil {
				r.problem = err.Error()
			}
		}
		t.rows = append(t.rows, r)
	}
	return t
}

// measure fills the table.
func (t *table) measure(ctx context.Context, dir string) {
	for _, r := range t.rows {
		if r.problem != "" {
			continue
		}
		fmt.Fprintf(os.Stderr, "\r%-70s", "counting syncs: "+r.name)
		if n, err := r.entrant.syncs(ctx, dir); err == nil {
			r.syncs = fmt.Sprintf("%.2f", n)
		}
	}
	for round := range *rounds {
		for _, r := range t.rows {
			r.round = map[job]measured{}
		}
		for i, what := range measures {
			// The first of a measure changes from round to round.
			for k := range t.rows {
				r := t.rows[(k+round)%len(t.rows)]
				if r.problem != "" {
					continue
				}
				fmt.Fprintf(os.Stderr, "\r%-70s", fmt.Sprintf("round %d of %d: %s: %s", round+1, *rounds, what.name, r.name))
				m, err := r.once(ctx, dir, what.job)
				if err != nil {
					r.problem = fmt.Sprintf("%s: %v", what.name, err)
					continue
				}
				r.values[i] = append(r.values[i], what.value(m))
			}
		}
	}
	fmt.Fprintf(os.Stderr, "\r%70s\r", "")
}

// once does a job, unless it has been done in this round for another measure.
func (r *row) once(ctx context.Context, dir string, j job) (measured, error) {
	if m, ok := r.round[j]; ok {
		return m, nil
	}
	folder, err := os.MkdirTemp(dir, r.name+"-")
	if err != nil {
		return measured{}, err
	}
	defer os.RemoveAll(folder)
	m, err := r.do(ctx, folder, j)
	if err != nil {
		return m, err
	}
	r.round[j] = m
	r.setting = cmp.Or(m.Setting, r.setting)
	return m, nil
}

// do does a job in a new folder, and checks that it was done.
func (r *row) do(ctx context.Context, folder string, j job) (measured, error) {
	j.Dir, j.Millis = folder, int64(*seconds*1e3)
	if j.Do == "wake" {
		before := j
		before.Do = "suspend"
		if _, err := r.process(ctx, before); err != nil {
			return measured{}, err
		}
		m, err := r.process(ctx, j)
		if err == nil && m.Steps != 1 {
			err = fmt.Errorf("%d steps after the wait instead of 1", m.Steps)
		}
		return m, err
	}
	j.Do, j.Warm = "runs", 100
	m, err := r.process(ctx, j)
	if err == nil && (m.Runs == 0 || m.Steps != int64(m.Runs*j.Steps)) {
		err = fmt.Errorf("%d steps in %d runs of %d", m.Steps, m.Runs, j.Steps)
	}
	return m, err
}

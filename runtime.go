package perdure

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"log/slog"
	"maps"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/perdure/perdure/archive"
	export "github.com/perdure/perdure/internal/archive"
	"github.com/perdure/perdure/internal/engine"
	"github.com/perdure/perdure/internal/explain"
	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/lease"
	"github.com/perdure/perdure/internal/lifecycle"
	"github.com/perdure/perdure/internal/logbook"
	"github.com/perdure/perdure/internal/threads"
	"github.com/perdure/perdure/internal/worker"
	"github.com/perdure/perdure/store"
)

// Options of a runtime, for [New]. The zero value is ready to use; [Open] uses it.
type Options struct {
	// Version names the code. If a run is blocked because it does not fit code
	// of this version, workers of the same version leave it alone, and those of
	// any other try it. The default is a checksum of the executable.
	Version string
	// Validator checks answers against the JSON Schema of their question. The
	// default is the one passed to [RegisterValidator]; package agent registers one.
	Validator Validator
	// Observer sees steps and entries, for traces and metrics. A [Tracer] sees
	// passes too.
	Observer Observer
	// Logger receives errors that no caller is waiting for, and each failed
	// attempt of a step that is retried. The default discards them.
	Logger *slog.Logger
	// Concurrency is how many runs a worker executes at a time; 0 means 1000. A
	// run that waits for a model or another server costs some memory and a
	// connection, but no core. Choose fewer if steps compute, or use something
	// scarce: child processes, browsers, connections, a provider's rate limit.
	// Suspended runs do not count.
	Concurrency int
	// Lease is how long a worker may be silent before others take over its
	// runs, and so how long the runs of a killed process stand still; 0 means 3 s,
	// and the maximum is 10 minutes.
	Lease time.Duration
	// Grace is how long Work lets running steps continue when it is stopped; 0
	// means 10 s.
	Grace time.Duration
	// DumpInterval is how often deps are saved inside a long step; 0 means 5 s.
	DumpInterval time.Duration
	// MaxQueue is how many inputs may wait on a thread; 0 means 100.
	MaxQueue int
	// Trust lists public keys, see [Runtime.ExportKey], that may sign imports
	// of the same tenant: what people decided there then counts here. The
	// store's own key is always trusted.
	Trust []string
	// Archive is where archived threads are kept, see [Runtime.Archive]. All processes
	// on a store that archive, restore or erase threads need the same one.
	Archive archive.Place
	// Retention says which threads workers archive or erase once they are at rest,
	// see [Retention]: the first rule that fits a thread applies, and a thread that no
	// rule fits stays. By default all threads stay. Give all workers of a store the
	// same rules.
	Retention []Retention
	// RetentionRate is the maximum number of threads per second that Retention
	// removes, for all workers together; 0 means 20.
	RetentionRate int
	// Development reports deps that change outside leaf steps, at the cost of a
	// dump before each step.
	Development bool
}

// Validator checks a value against a JSON Schema. A missing value is nil.
type Validator interface {
	Validate(schema, value json.RawMessage) error
}

var validator Validator

// RegisterValidator sets the default of [Options.Validator]. It is called by the
// init function of a package that provides one.
func RegisterValidator(v Validator) { validator = v }

// Runtime starts, runs and controls threads on a store. Many runtimes, in many
// processes, may share a store.
type Runtime struct {
	seam   // for packages of this module that build on the kernel
	core   *core
	tenant *threads.Tenant
	life   *lifecycle.Control
}

type core struct {
	threads *threads.Threads
	engine  *engine.Engine
	staff   *worker.Staff
	opts    Options
	flows   map[string]Flow
	version string
	own     bool // the store was opened here
	book    *logbook.Book

	explainer explain.Explainer
}

// Open opens the store at a URL and returns a runtime with the flows and the zero
// [Options]. The program has to import the driver for the URL's scheme:
// store/sqlitestore for sqlite:FILE, store/pgstore for postgres://HOST/DATABASE,
// store/redisstore for redis://HOST, store/s3store for s3://BUCKET/PREFIX,
// store/upstashstore for upstash://HOST, store/natsstore for nats://HOST,
// store/filestore for file:DIR, and store/memstore for memory:.
//
// When a disk is full or a sync fails, the store is reopened, and the runtime
// continues once it works again; programs that call New can use [store.Reopen] for
// the same.
func Open(ctx context.Context, url string, flows ...Flow) (*Runtime, error) {
	s, err := openAgain(ctx, url)
	if err != nil {
		return nil, err
	}
	r, err := New(ctx, s, Options{}, flows...)
	if err != nil {
		return nil, errors.Join(err, s.Close())
	}
	r.core.own = true
	return r, nil
}

// openAgain opens a store that is reopened when its disk fails. A store in memory
// does not fail, and would be empty afterwards.
func openAgain(ctx context.Context, url string) (store.Store, error) {
	if strings.HasPrefix(url, "memory:") {
		return store.Open(ctx, url)
	}
	return store.Reopen(ctx, func(ctx context.Context) (store.Store, error) { return store.Open(ctx, url) })
}

// New returns a runtime on a store. Its error names everything that is wrong
// with the flows and options. The caller closes the store.
func New(ctx context.Context, s store.Store, opts Options, flows ...Flow) (*Runtime, error) {
	c := &core{opts: opts, flows: map[string]Flow{}, version: opts.Version}
	if c.opts.Validator == nil {
		c.opts.Validator = validator
	}
	errs := []error{opts.check()}
	if s == nil {
		errs = append(errs, fmt.Errorf("%w: no store", fault.ErrInvalid))
	}
	for _, f := range flows {
		if err := f.check(); err != nil {
			errs = append(errs, err)
		} else if _, twice := c.flows[f.name]; twice {
			errs = append(errs, fmt.Errorf("%w: two flows are called %q", fault.ErrName, f.name))
		}
		c.flows[f.name] = f
	}
	errs = append(errs, export.CheckKeys(opts.Trust))
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	if c.version == "" {
		c.version = executable()
	}
	c.opts.Concurrency = cmp.Or(opts.Concurrency, 1000)
	c.opts.Lease = cmp.Or(opts.Lease, 3*time.Second)
	c.opts.Grace = cmp.Or(opts.Grace, 10*time.Second)
	c.opts.DumpInterval = cmp.Or(opts.DumpInterval, 5*time.Second)
	c.opts.MaxQueue = cmp.Or(opts.MaxQueue, 100)
	c.opts.RetentionRate = cmp.Or(opts.RetentionRate, 20)
	log := opts.Logger
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	c.book = logbook.New(log.Handler())
	log = slog.New(c.book)
	var err error
	if c.threads, err = threads.New(ctx, s, log, c.opts.Lease); err != nil {
		return nil, fmt.Errorf("perdure: opening the runtime: %w", err)
	}
	c.threads.FinishAway = lifecycle.New(c.threads.Tenant(""), 0, nil).FinishAway
	c.engine = engine.New(c.threads, engine.Options{Version: c.version, Validator: c.opts.Validator, Observer: c.observer(), Lease: c.opts.Lease,
		Grace: c.opts.Grace, DumpInterval: c.opts.DumpInterval, Development: c.opts.Development, CheckInput: c.checkInput})
	work := worker.Options{Version: c.version, Flows: map[string]engine.FlowFunc{}, Concurrency: c.opts.Concurrency, Lease: c.opts.Lease, Grace: c.opts.Grace, Finish: c.finishErases}
	for name, f := range c.flows {
		work.Flows[name] = f.fn
	}
	c.staff = worker.New(c.threads, c.engine, work)
	c.explainer = explain.Explainer{Threads: c.threads, Staff: c.staff}
	if n, ok := store.As[store.Notifier](s); ok && opts.Logger != nil {
		n.Notify(c.logOutage())
	}
	return c.runtime(c.threads.Tenant("")), nil
}

type seam = threads.Seam

func (c *core) runtime(t *threads.Tenant) *Runtime {
	r := &Runtime{seam: threads.NewSeam(t), core: c, tenant: t, life: lifecycle.New(t, c.opts.MaxQueue, c.checkInput).With(c.staff)}
	if c.opts.Archive != nil {
		r.life.WithArchive(r.vault())
	}
	return r
}

// maxConcurrency is the maximum of Options.Concurrency.
const maxConcurrency = 1 << 20

// check returns what is wrong with the options, before Work finds out.
func (o *Options) check() error {
	var errs []error
	bad := func(format string, args ...any) {
		errs = append(errs, fmt.Errorf("%w: Options."+format, append([]any{fault.ErrInvalid}, args...)...))
	}
	if o.Concurrency < 0 || o.Concurrency > maxConcurrency {
		bad("Concurrency is %d, and has to be from 1 to %d, or 0 for the default", o.Concurrency, maxConcurrency)
	}
	if o.Lease != 0 && (o.Lease < lease.MinTTL || o.Lease > lease.MaxTTL) {
		bad("Lease is %v, and has to be from %v to %v, or 0 for the default", o.Lease, lease.MinTTL, lease.MaxTTL)
	}
	for name, n := range map[string]int64{"Grace": int64(o.Grace), "DumpInterval": int64(o.DumpInterval), "MaxQueue": int64(o.MaxQueue), "RetentionRate": int64(o.RetentionRate)} {
		if n < 0 {
			bad("%s is negative", name)
		}
	}
	errs = append(errs, o.checkRetention()...)
	return errors.Join(append(errs, fault.CheckText("Options.Version", o.Version, 200))...)
}

// logOutage returns a function that logs when writes begin to fail and when they succeed again.
func (c *core) logOutage() func(error) {
	var since time.Time
	return func(err error) {
		if err != nil {
			since = time.Now()
			c.threads.Log.Error("the store takes no writes; runs wait until it does", "error", err)
			return
		}
		c.threads.Log.Info("the store takes writes again", "after", time.Since(since).Round(time.Millisecond))
	}
}

// executable returns a checksum of the running program, and its size. Every process reads
// all of its program for it, so it is one that processors compute.
var executable = sync.OnceValue(func() string {
	name, err := os.Executable()
	if err != nil {
		return "unknown"
	}
	f, err := os.Open(name)
	if err != nil {
		return "unknown"
	}
	defer f.Close()
	h := crc32.New(crc32.MakeTable(crc32.Castagnoli))
	size, err := io.Copy(h, f)
	if err != nil {
		return "unknown"
	}
	return fmt.Sprintf("%08x%08x", h.Sum32(), uint32(size))
})

// Tenant returns the same runtime for the threads of another tenant. Threads
// of different tenants never see each other. The default tenant is "".
func (r *Runtime) Tenant(tenant string) *Runtime {
	t := r.core.threads.Tenant(tenant)
	t.Owner = r.tenant.Owner
	return r.core.runtime(t)
}

// Flows returns the names of the flows, in order.
func (r *Runtime) Flows() []string { return slices.Sorted(maps.Keys(r.core.flows)) }

// Flow returns the flow of the given name and whether it exists.
func (r *Runtime) Flow(name string) (Flow, bool) {
	f, ok := r.core.flows[name]
	return f, ok
}

// Close closes the store if Open opened it. Let Work return first.
func (r *Runtime) Close() error {
	if r.core.own {
		return r.core.threads.Store.Close()
	}
	return nil
}

// User returns the same runtime, limited to the threads that a user of the
// tenant owns. Threads of others, and their asks, appear not to exist; only creating
// a thread reveals that an id is taken, by ErrExists. Everything that the returned
// runtime creates belongs to the user.
func (r *Runtime) User(user string) *Runtime {
	t := *r.tenant
	t.Owner = &user
	return r.core.runtime(&t)
}

package server

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/internal/due"
	"github.com/perdure/perdure/internal/threads"
	"github.com/perdure/perdure/store"
)

// Quota limits what a tenant may have, in all servers of a store together. 0 means no
// limit.
type Quota struct {
	// Threads are all threads that were not erased.
	Threads int64
	// Bytes are those of journals, the values and files of threads, and uploads.
	Bytes int64
	// Runs are threads with a run that is queued or executed. Runs that wait for
	// people or for time do not count.
	Runs int64
	// Starts are starts of runs within a minute.
	Starts int64
	// Streams are event streams and waits for runs.
	Streams int64
}

// Quotas are the quotas of tenants that differ from the standard.
type Quotas interface {
	// Of returns the quota of a tenant, given that of all others.
	Of(tenant string, standard Quota) Quota
	// Tenants returns the tenants that have a quota of their own. Metrics name
	// them.
	Tenants() []string
}

// fields returns pointers to the fields of a quota, by name.
func (q *Quota) fields() map[string]*int64 {
	return map[string]*int64{"threads": &q.Threads, "bytes": &q.Bytes, "runs": &q.Runs, "starts": &q.Starts, "streams": &q.Streams}
}

// Set sets one of threads, bytes, runs, starts and streams.
func (q *Quota) Set(name string, n int64) error {
	field, ok := q.fields()[name]
	switch {
	case !ok:
		return fmt.Errorf("there is no quota %q; there are threads, bytes, runs, starts and streams", name)
	case n < 0:
		return fmt.Errorf("%s=%d; use a number of at least 1, or 0 for no bound", name, n)
	}
	*field = n
	return nil
}

// bounds returns the fields that are not 0, by name.
func (q Quota) bounds() map[string]int64 {
	set := map[string]int64{}
	for name, n := range q.fields() {
		if *n > 0 {
			set[name] = *n
		}
	}
	return set
}

// helps says what to do when a quota is used up.
var helps = map[string]string{
	"threads": "erase threads that are no longer needed, or ask the operator for more",
	"bytes":   "erase threads or uploads that are no longer needed, or ask the operator for more",
	"runs":    "try again when some of its runs have ended or wait",
	"starts":  "try again later",
	"streams": "close some",
}

// quotas counts what tenants have. Nothing of it is written when a request is
// served: threads and bytes are counted in the background, and what this server has
// admitted since the last count is added; starts and streams are counted here, and
// servers tell each other how many they have.
type quotas struct {
	s        *Server
	standard Quota
	own      Quotas // nil: none
	share    share

	mu      sync.Mutex
	tenants map[string]*account

	busyMu sync.Mutex
	busy   map[string]int64 // threads by tenant's part
	fresh  time.Time        // busy is good until then, if there is room
	again  time.Time        // it may be counted again then
}

// account is what is known about a tenant. Quotas' mutex guards it.
type account struct {
	last            *count        // nil: not counted yet
	until, again    time.Time     // it is counted again: anyhow, and if there is no room
	counting        chan struct{} // closed when a count is done; nil: nobody counts
	threads, bytes  int64         // added since the last count began
	runs            int64         // added since the last look at what is busy
	making, queuing int64         // threads and runs of requests in progress, which a count may miss
	writing         int64         // bytes that requests in progress may write
	starts          window
	streams         int64
	refused         map[string]int64
}

func newQuotas(s *Server) *quotas {
	q := &quotas{s: s, standard: s.opts.Quota, own: s.opts.Quotas, tenants: map[string]*account{}}
	q.share.init(q)
	return q
}

// on reports whether there are any quotas.
func (q *quotas) on() bool { return q.own != nil || q.standard != Quota{} }

// quotaOf returns the quota of a tenant.
func (q *quotas) quotaOf(tenant string) Quota {
	if q.own != nil {
		return q.own.Of(tenant, q.standard)
	}
	return q.standard
}

// account returns what is known about a tenant. The mutex is held.
func (q *quotas) account(tenant string) *account {
	a := q.tenants[tenant]
	if a == nil {
		if len(q.tenants) >= maxTenants {
			maps.DeleteFunc(q.tenants, func(_ string, a *account) bool { return a.idle() })
		}
		a = &account{refused: map[string]int64{}}
		q.tenants[tenant] = a
	}
	return a
}

// idle reports whether nothing is lost if an account is forgotten.
func (a *account) idle() bool {
	return a.streams == 0 && a.writing == 0 && a.making == 0 && a.queuing == 0 && a.counting == nil && a.starts.sum(time.Now()) == 0 && time.Now().After(a.until)
}

// refuse counts a refusal and returns the error. The mutex is held.
func (a *account) refuse(name string, limit int64, retry time.Duration) error {
	a.refused[name]++
	return &perdure.QuotaError{Quota: name, Limit: limit, Retry: retry, Help: helps[name]}
}

// refuseBytes refuses bytes. There may be room soon if there is but for what other requests
// may still write.
func (a *account) refuseBytes(soon bool, limit int64) error {
	if soon {
		return a.refuse("bytes", limit, time.Second)
	}
	return a.refuse("bytes", limit, 0)
}

var _ threads.Guard = (*load)(nil)

// Admit implements threads.Guard for the caller's tenant.
func (l *load) Admit(ctx context.Context, g threads.Growth) error {
	if l == nil || l.s.quotas == nil || !l.s.quotas.on() {
		return nil
	}
	g.Thread, g.Run, g.Bytes = g.Thread && !l.grown.Thread, g.Run && !l.grown.Run, max(0, g.Bytes-l.grown.Bytes)
	if g == (threads.Growth{}) {
		return nil
	}
	bytes := g.Bytes
	if l.grown == (threads.Growth{}) {
		bytes += l.bodyBytes() // of the input or state that comes with it
	}
	at, err := l.s.quotas.admit(ctx, l.tenant, g, bytes, l.reserved)
	if err != nil {
		return err
	}
	l.reserved += bytes
	if g.Run {
		l.admitted = at
	}
	l.grown.Thread, l.grown.Run, l.grown.Bytes = l.grown.Thread || g.Thread, l.grown.Run || g.Run, l.grown.Bytes+g.Bytes
	return nil
}

// settle says that what was admitted is in the store, or never will be.
func (l *load) settle() {
	g, q := l.grown, l.s.quotas
	if l.settled || g == (threads.Growth{}) {
		return
	}
	l.settled = true
	written := l.bodyBytes() + g.Bytes
	q.mu.Lock()
	defer q.mu.Unlock()
	a := q.account(l.tenant)
	n := int64(1)
	if l.refused {
		n = 0
	}
	a.writing, a.bytes = a.writing-l.reserved, a.bytes+n*written
	if g.Thread {
		a.making, a.threads = a.making-1, a.threads+n
	}
	if g.Run {
		a.queuing, a.runs = a.queuing-1, a.runs+n
		a.starts.takeBack(l.admitted, 1-n)
	}
}

// admit counts what a request is about to add, of which so many bytes are known, and
// returns when it did, or refuses it. The request has reserved some before.
func (q *quotas) admit(ctx context.Context, tenant string, g threads.Growth, size, reserved int64) (at time.Time, err error) {
	most := q.quotaOf(tenant)
	if most.Threads > 0 && g.Thread || most.Bytes > 0 {
		q.await(ctx, tenant, func(threads, bytes int64) bool {
			return g.Thread && most.Threads > 0 && threads >= most.Threads || most.Bytes > 0 && bytes >= most.Bytes
		})
	}
	busy := int64(0)
	if most.Runs > 0 && g.Run {
		if busy, err = q.busyOf(ctx, tenant, most.Runs); err != nil {
			return at, err
		}
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	a, now := q.account(tenant), time.Now()
	threads, bytes := a.used()
	switch others := q.share.ofOthers(tenant, now); {
	case g.Thread && most.Threads > 0 && threads >= most.Threads:
		return at, a.refuse("threads", most.Threads, 0)
	case most.Bytes > 0 && bytes >= most.Bytes:
		return at, a.refuseBytes(bytes-(a.writing-reserved) < most.Bytes, most.Bytes)
	case g.Run && most.Runs > 0 && busy >= most.Runs:
		return at, a.refuse("runs", most.Runs, time.Second)
	case g.Run && most.Starts > 0 && a.starts.sum(now)+others.starts.sum(now) >= most.Starts:
		return at, a.refuse("starts", most.Starts, a.starts.plus(others.starts, now).until(most.Starts, now))
	}
	a.writing += size
	if g.Thread {
		a.making++
	}
	if g.Run {
		a.queuing++
		a.starts.add(now, 1)
	}
	return now, nil
}

// used returns the threads and bytes of a tenant. The mutex is held.
func (a *account) used() (threads, bytes int64) {
	threads, bytes = a.threads+a.making, a.bytes+a.writing
	if a.last != nil {
		threads, bytes = threads+int64(a.last.threads), bytes+a.last.bytes+a.last.more
	}
	return threads, bytes
}

// reserve reserves bytes for an upload or import of a length, or of at most as many as
// it may have if the length is not known (-1). It returns how many there may be, and a
// function to call with how many were written.
func (q *quotas) reserve(ctx context.Context, tenant string, length, largest int64) (room int64, done func(written int64), err error) {
	most := q.quotaOf(tenant).Bytes
	if most == 0 {
		return largest, func(int64) {}, nil
	}
	q.await(ctx, tenant, func(_, bytes int64) bool { return bytes+max(length, threads.LeastUpload) > most })
	q.mu.Lock()
	defer q.mu.Unlock()
	a := q.account(tenant)
	_, bytes := a.used()
	if room = min(largest, most-bytes); most-bytes < threads.LeastUpload || length > room {
		return 0, nil, a.refuseBytes(bytes-a.writing+max(length, threads.LeastUpload) <= most, most)
	}
	if length >= 0 {
		room = length
	}
	reserved := max(room, threads.LeastUpload)
	a.writing += reserved
	return room, func(written int64) {
		q.mu.Lock()
		defer q.mu.Unlock()
		a.writing, a.bytes = a.writing-reserved, a.bytes+written
	}, nil
}

// overBytes returns the error for an upload or import that needs more than there is
// room for.
func (q *quotas) overBytes(tenant string) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.account(tenant).refuse("bytes", q.quotaOf(tenant).Bytes, 0)
}

// openStream counts a stream until the returned function is called, or refuses it.
func (q *quotas) openStream(tenant string) (leave func(), err error) {
	if !q.on() {
		return func() {}, nil
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	a := q.account(tenant)
	if most := q.quotaOf(tenant).Streams; most > 0 && a.streams+q.share.ofOthers(tenant, time.Now()).streams >= most {
		return nil, a.refuse("streams", most, time.Second)
	}
	a.streams++
	return sync.OnceFunc(func() {
		q.mu.Lock()
		defer q.mu.Unlock()
		a.streams--
	}), nil
}

// countTime is how long a request waits for a count of its tenant. After that it is
// decided without.
const countTime = 2 * time.Second

// await makes sure that a tenant is counted: in the background when the last count
// is old, and while the request waits if there is none, or if there is no room by
// it: threads may have been erased, and what was added while it was made may be in it
// twice.
func (q *quotas) await(ctx context.Context, tenant string, full func(threads, bytes int64) bool) {
	done, wait := q.count(tenant, full)
	if !wait {
		return
	}
	late := time.NewTimer(countTime)
	defer late.Stop()
	select {
	case <-done:
	case <-late.C:
	case <-ctx.Done():
	}
}

// count begins a count of a tenant if the last one is old, or there is no room by it
// and counting takes little of the time. Done is closed when it is made; wait says
// that it is needed.
func (q *quotas) count(tenant string, full func(threads, bytes int64) bool) (done <-chan struct{}, wait bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	a, now := q.account(tenant), time.Now()
	none := a.last == nil || full(a.used())
	if a.counting == nil && (now.After(a.until) || none && now.After(a.again)) {
		a.counting = make(chan struct{})
		go q.recount(tenant, a, a.threads, a.bytes)
	}
	return a.counting, none && a.counting != nil
}

// recount counts a tenant. What was added before it began is in the count then.
func (q *quotas) recount(tenant string, a *account, threads, bytes int64) {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	go func() {
		select {
		case <-q.s.stop:
			cancel()
		case <-ctx.Done():
		}
	}()
	begun := time.Now()
	n, err := q.s.tallies.countThreads(ctx, q.s.rt.Tenant(tenant))
	q.mu.Lock()
	defer q.mu.Unlock()
	now := time.Now()
	a.until, a.again = now.Add(max(keepCounts, 10*now.Sub(begun))), now.Add(max(keepFull, 10*now.Sub(begun)))
	if err == nil {
		a.last, a.threads, a.bytes = n, a.threads-threads, a.bytes-bytes
	} else if !q.s.stopped() {
		q.s.opts.Logger.Warn("counting what a tenant has", "error", err)
	}
	close(a.counting)
	a.counting = nil
}

// How long a count of busy threads is good: while there is room, and while there is
// none, since runs may have ended.
const (
	keepBusy = time.Second
	keepFull = 20 * time.Millisecond
)

// busyOf returns how many threads of a tenant have a run that is queued or
// executed. If that is at least most, it is not old. It looks at the hints of all
// tenants, at most a tenth of the time.
func (q *quotas) busyOf(ctx context.Context, tenant string, most int64) (int64, error) {
	q.busyMu.Lock()
	defer q.busyMu.Unlock()
	all := threads.Behind(q.s.rt).All
	busy := func() int64 {
		q.mu.Lock()
		defer q.mu.Unlock()
		a := q.account(tenant)
		return q.busy[all.Tenant(tenant).Part] + a.runs + a.queuing
	}
	if now := time.Now(); now.Before(q.again) || now.Before(q.fresh) && busy() < most {
		return busy(), nil
	}
	if err := q.lookBusy(ctx, all.Store); err != nil {
		return 0, err
	}
	return busy(), nil
}

// lookBusy counts the busy threads of all tenants. The mutex busyMu is held.
func (q *quotas) lookBusy(ctx context.Context, s store.Store) error {
	begun := time.Now()
	q.mu.Lock()
	before := map[*account]int64{}
	for _, a := range q.tenants {
		before[a] = a.runs
	}
	q.mu.Unlock()
	seen, busy := map[string]bool{}, map[string]int64{}
	for name, err := range due.Busy(ctx, s, begun.UnixMicro()) {
		if err != nil {
			return err
		}
		if part, _, ok := strings.Cut(name, "."); ok && !seen[name] {
			seen[name] = true
			busy[part]++
		}
	}
	now := time.Now()
	took := now.Sub(begun)
	q.busy, q.fresh, q.again = busy, now.Add(max(keepBusy, 10*took)), now.Add(max(keepFull, 10*took))
	q.mu.Lock()
	defer q.mu.Unlock()
	for a, n := range before { // those are among the hints, or over
		a.runs -= n
	}
	return nil
}

// named returns the tenants that metrics name: the default one, and those with a
// quota of their own.
func (q *quotas) named() []string {
	tenants := []string{""}
	if q.own != nil {
		tenants = append(tenants, q.own.Tenants()...)
	}
	slices.Sort(tenants)
	return slices.Compact(tenants)
}

// tally returns the starts of the last minute and the open streams of a tenant, in
// all servers as far as this one knows.
func (q *quotas) tally(tenant string) (starts, streams int64) {
	q.mu.Lock()
	defer q.mu.Unlock()
	now := time.Now()
	if a := q.tenants[tenant]; a != nil {
		starts, streams = a.starts.sum(now), a.streams
	}
	others := q.share.ofOthers(tenant, now)
	return starts + others.starts.sum(now), streams + others.streams
}

// Package observed wraps a store and shows an [Observer] each call: what it
// is, how much it carries, how long the store took and how it ended. It is
// the seam for metrics and traces.
//
// [Stats] is an observer that counts, for a look at what a program does:
//
//	var stats observed.Stats
//	s := observed.New(inner, &stats)
//	…
//	fmt.Print(stats.Snapshot())
//
// An observer of one's own begins a span and ends it; the context it returns
// is the one that the store inside gets:
//
//	observed.New(inner, observed.Func(func(ctx context.Context, c observed.Call) (context.Context, func(observed.Result)) {
//		ctx, span := tracer.Start(ctx, "store "+string(c.Op))
//		return ctx, func(r observed.Result) { span.End(r.Err) }
//	}))
//
// A batch of store.Batcher is observed as one append, and an unsynced put as a put.
// The names of journals and cells go to the observer, their contents never.
// Other upgrades, such as wake-ups, are those of the store inside and not observed.
package observed

// Package observed wraps a store and reports each call to an [Observer]: which
// call it is, how much it carries, how long the store took and how it ended. It
// is the place to attach metrics and traces.
//
// [Stats] is an observer that counts, to see what a program does:
//
//	var stats observed.Stats
//	s := observed.New(inner, &stats)
//	…
//	fmt.Print(stats.Snapshot())
//
// An observer of your own may begin a span and end it; the context it returns is
// passed to the store inside:
//
//	observed.New(inner, observed.Func(func(ctx context.Context, c observed.Call) (context.Context, func(observed.Result)) {
//		ctx, span := tracer.Start(ctx, "store "+string(c.Op))
//		return ctx, func(r observed.Result) { span.End(r.Err) }
//	}))
//
// A batch of store.Batcher is observed as one append, and an unsynced put as a
// put. The observer is given the names of journals and cells, never their
// contents. Other upgrades, such as wake-ups, are those of the store inside and
// are not observed.
package observed

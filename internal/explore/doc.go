// Package explore runs a few actors that share one store in every order in
// which their store calls can fall, and checks each ending. It finds the
// interleaving that nobody thought of, and shows it as a list of calls.
//
//	func TestTwoClaims(t *testing.T) {
//		explore.Run(t, explore.Config{Crashes: 1}, func(w *explore.World) {
//			claim := func(ctx context.Context, s store.Store) error { return Claim(ctx, s, "thread") }
//			a := w.Actor("a", claim)
//			b := w.Actor("b", claim)
//			w.Actor("heir", claim).After(a, b) // starts when both are done or dead
//			w.Check(func(ctx context.Context, s store.Store) error {
//				return exactlyOneClaim(ctx, s) // s is the store itself
//			})
//		})
//	}
//
// The setup function is called anew for each execution. It declares actors,
// may write to [World.Store], and keeps what the executions must not share in
// its own variables.
//
// # What is explored
//
// Each call of [store.Store], and a batch of [store.Batcher], is one indivisible
// step: the actor blocks in it until it is its turn. A read takes its whole snapshot when its loop starts.
// A yield of [store.Watch] is a step too, possible when something under its
// prefix was written since the last; until then the actor waits. An actor may
// start goroutines of its own, whose calls are steps like all others. Between
// two steps all code runs until each goroutine waits.
//
// Depth first, every choice of the next step is tried. Of executions that
// differ only in the order of neighbouring steps that do not concern each
// other (two reads; writes of different names) one is enough, and the others
// are cut off where that shows; Config.Every runs them all. Config.Max
// bounds the number of executions, and reaching it is a failure: what passes
// has been explored to the end.
//
// # Faults
//
// With Config.Crashes the scheduler may also kill an actor at a write, before
// the write happens or behind it, when only the answer is lost. The context
// of a killed actor is cancelled and each of its calls answers [ErrKilled], at
// once and for ever: production code must return on it, and its return is
// awaited. Config.Unknowns answers a write with [ErrUnknown], done or not, and
// the actor lives on. Config.Conflicts refuses a write for no reason, as
// engines may. An actor that is [Actor.Reliable] suffers none of these.
//
// # Waiting and time
//
// Time is that of testing/synctest. It passes only when no step is possible,
// up to the next timer that leads to one, and in all by Config.MaxTime. With
// Config.Delays it may also pass while steps are possible, as if their actors
// were frozen meanwhile.
//
// An execution ends when no step is possible and no time is left. Actors that
// have not returned are then [Actor.Waiting]: for a worker this is how it
// should end, for others it is a deadlock, and Check tells them apart. Check
// runs before the contexts of the waiting are cancelled. Without a Check,
// [World.Settled] is the check: nobody waits, nobody failed.
//
// # Failures
//
// A failure prints its steps and its choices. Config.Replay with those choices
// runs this one execution alone, for a debugger or more prints.
//
// # What actors must not do
//
// Executions are repeated, so actors must do the same when they see the same.
// Randomness of crypto/rand is seeded alike each time (which is why the test
// cannot be parallel); math/rand, map order and a select with several ready
// cases are not, and where they change the calls the exploration stops with
// an error. Actors meet in the store only. One that changes memory which
// others use does it directly behind a [Point], a step that concerns all
// others. Real I/O and locks held across store calls block the exploration.
package explore

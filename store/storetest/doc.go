// Package storetest is the contract of package store in the form of tests, which every
// driver has to pass:
//
//	func open(ctx context.Context, dir string) (store.Store, error) {
//		return mystore.Open(ctx, filepath.Join(dir, "my.db"))
//	}
//
//	func TestStore(t *testing.T) { storetest.Run(t, open) }
//	func TestKill(t *testing.T)  { storetest.Kill(t, open, storetest.KillOptions{}) }
//
// The parts:
//
//   - [Run] has a named case for each clause, one of which is [Linearize]. A
//     failing case prints the clause and the reason for it.
//   - [Kill] is for stores that survive their process: it runs the test binary
//     as a child that writes, kills it at random moments, and checks that all
//     acknowledged writes are there. Call it in a test of its own, which does
//     nothing before the call that a child should not do.
//   - [PowerCut] is Kill with a disk that loses power, for stores that claim
//     to survive that.
//   - [Poison] is for stores on a disk that a test can make fail.
//   - [Outage] is for stores whose engine a test can stop and start.
//   - [Wraps] is for wrappers: it checks that upgrades can be reached through
//     them, and that batches and unsynced puts do not bypass them.
//
// The [Opener] is given an empty folder for each case, and is called several
// times with the same one: handles on one folder are handles on one store. A
// driver for a server derives a database or a prefix from the folder's name.
//
// A store that passes meets the clauses as far as a test can tell. A power failure
// is only tested with a [Disk] that can be cut: otherwise the class [store.Power]
// is a driver's claim, backed by the settings that it verifies.
package storetest

// Package perduretest helps to test flows: that they survive a crash at any
// moment, that their deps can be resumed, and that their journals have not
// changed. It needs nothing but package testing.
//
// # Virtual time
//
// A flow may sleep for a week or wait for a person. [Virtual] runs it in a
// bubble of virtual time, on a store in memory:
//
//	func TestRefund(t *testing.T) {
//		perduretest.Virtual(t, perduretest.Setup{Flows: []perdure.Flow{refund}}, func(t *testing.T, e *perduretest.Env) {
//			e.Start("order-7", "refund", "it came broken")
//			e.Advance(48 * time.Hour)                                       // nobody has time for it
//			e.Restart()                                                     // the process is killed meanwhile
//			e.Answer("order-7", "/approve", perdure.Answer{Value: true})
//			e.Wait("order-7", perdure.Succeeded)
//		})
//	}
//
// # A crash at every write
//
// [CrashEverywhere] runs a flow, and then runs it again with a crash at each write
// that it makes to the store, once with the write lost and once with only its
// result lost, and compares the outcomes. The flow's steps count their effects
// with [Effects], and a function plays the outside world:
//
//	var fx perduretest.Effects // the flow's steps call fx.Count(ctx, "mail")
//
//	func TestRefundSurvives(t *testing.T) {
//		perduretest.CrashEverywhere(t, perduretest.Crash{
//			Flows:   []perdure.Flow{refund},
//			Start:   []perdure.StartRequest{{Flow: "refund", Input: "it came broken"}},
//			Effects: &fx,
//			Outside: func(ctx context.Context, rt *perdure.Runtime, run *perdure.Run) error {
//				for _, ask := range run.Asks {
//					answer := perdure.AskAnswer{Ask: ask.ID, Answer: perdure.Answer{Value: true}}
//					if err := rt.Answer(ctx, answer); err != nil {
//						return err
//					}
//				}
//				return nil
//			},
//		})
//	}
//
// It finds the usual mistakes: an effect outside a step, or in the body of a step
// that has steps inside; an effect that must not be repeated in a step that is not
// at-most-once; step names and results that depend on chance, time or the
// process's memory; a dep that is changed outside a step. The message says where
// the cut was, and shows the journals with and without it.
//
// Two undisturbed runs of the flow have to be alike. A function that is to fail at
// first asks [Attempt], not a counter in memory. If a result holds a time or
// something random, remove it with Crash.Same. A crash costs a lease of virtual
// time, ten minutes unless Options says otherwise (a minute in [Virtual]), so an ask
// that expires sooner may expire.
//
// # Deps
//
// [CheckResumable] checks that a resumable dep keeps the rules, and explains each
// rule that it breaks.
//
// # Journals
//
// [Golden] compares a thread's journal, made readable by [Trace], with a file in
// testdata, so that a change in what a flow records does not go unnoticed.
//
// # Yesterday's runs
//
// [Replay] runs today's code against an exported thread, for example from
// production, without calling a step function: so a change that would block runs
// in progress fails a test first.
//
//	func TestOrdersOfLastWeek(t *testing.T) {
//		perduretest.Replay(t, "testdata/order-4711.jsonl", order)
//	}
package perduretest

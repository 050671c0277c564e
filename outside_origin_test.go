package perdure_test

import (
	"testing"
	"testing/synctest"

	"github.com/perdure/perdure"
)

func TestEventsSayWhereForksComeFromAndRewindsGo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := newKit(t, nil, perdure.Options{}, echoFlow("echo"))
		for range 2 {
			k.start("t", "echo", "x")
			k.wait("t", perdure.Succeeded)
		}
		synctest.Wait()
		k.rewind("t", 4)
		k.forked(perdure.ForkRequest{Thread: "t", As: "f", At: 2})
		k.importFile(k.exported("t", perdure.ExportOptions{}), "i")
		seq := k.seqOf("t")
		for thread, want := range map[string]perdure.Event{
			"t": {Kind: "rewound", Seq: seq, To: 4},
			"f": {Kind: "forked", Seq: 3, From: "t", At: 2},
			"i": {Kind: "forked", Seq: seq + 1, From: "t", At: seq},
		} {
			found := false
			for _, e := range k.events(thread) {
				if e.Kind == want.Kind {
					found = true
					if e.Seq != want.Seq || e.From != want.From || e.At != want.At || e.To != want.To {
						t.Errorf("thread %s: %s at %d from %q at %d to %d, want %+v", thread, e.Kind, e.Seq, e.From, e.At, e.To, want)
					}
				} else if e.From != "" || e.At != 0 && e.Kind != "forked" || e.To != 0 && e.Kind != "rewound" {
					t.Errorf("thread %s: %+v", thread, e)
				}
			}
			if !found {
				t.Errorf("thread %s has no event %q", thread, want.Kind)
			}
		}
	})
}

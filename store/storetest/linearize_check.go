package storetest

import (
	"cmp"
	"crypto/sha256"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/anishathalye/porcupine"
)

// linCall is one operation of a history.
type linCall struct {
	client    int
	call, ret int64
	read      bool
	entries   []string // appended or read; no entry is appended twice
	after     uint64   // of an append
	cell      string   // that it writes too, "" for none
	outcome   outcome  // of an append
	last      uint64   // of an accepted append: what it answered
	forgotten bool     // the answer came and was thrown away
}

// outcome is what a client knows of its append.
type outcome int

const (
	accepted  outcome = iota
	refused           // ErrConflict: nothing was written
	undecided         // an error that leaves it open, or the answer was lost
)

func (c linCall) String() string {
	when := fmt.Sprintf("%4d…%-4d client %d", c.call, c.ret, c.client)
	if c.read {
		return fmt.Sprintf("%s reads %d entries, %s", when, len(c.entries), ends(c.entries))
	}
	var answer string
	switch c.outcome {
	case accepted:
		answer = fmt.Sprintf("accepted, ends at %d", c.last)
	case refused:
		answer = "refused"
	case undecided:
		answer = "outcome open"
	}
	return fmt.Sprintf("%s appends after %d, %s: %s", when, c.after, ends(c.entries), answer)
}

func ends(entries []string) string {
	switch n := len(entries); n {
	case 0:
		return "nothing"
	case 1:
		return fmt.Sprintf("%q", entries[0])
	default:
		return fmt.Sprintf("%q … %q", entries[0], entries[n-1])
	}
}

// linHistory is what all clients did, in no particular order.
type linHistory []linCall

// linState is a journal as the model knows it: its end, and a digest over all
// entries. It is comparable, as porcupine likes it.
type linState struct {
	last   uint64
	digest [sha256.Size]byte
}

func (s linState) with(entries []string) linState {
	for _, e := range entries {
		s = linState{s.last + 1, sha256.Sum256(append(s.digest[:], e...))}
	}
	return s
}

// linModel is the plain journal. A refusal proves nothing, since it may be
// spurious, but it writes nothing either.
var linModel = porcupine.Model{
	Init: func() any { return linState{} },
	Step: func(state, input, output any) (bool, any) {
		s, c := state.(linState), input.(linCall)
		switch {
		case c.read:
			return s == output.(linState), s
		case c.outcome == refused:
			return true, s
		}
		next := s.with(c.entries)
		return c.after == s.last && c.last == next.last, next
	},
}

// linCheckTime bounds the search for an order. Histories of this size take
// milliseconds.
const linCheckTime = time.Minute

// explain returns "" if the history is linearizable, or else where the search
// for an order got stuck.
func (h linHistory) explain() string {
	result, info := porcupine.CheckOperationsVerbose(linModel, h.operations(), linCheckTime)
	switch result {
	case porcupine.Ok:
		return ""
	case porcupine.Unknown:
		return fmt.Sprintf("The search for an order did not end within %v.", linCheckTime)
	}
	var best []porcupine.Operation
	for _, partial := range info.PartialLinearizationsOperations()[0] {
		if len(partial) > len(best) {
			best = partial
		}
	}
	placed := map[int64]bool{}
	for _, op := range best {
		placed[op.Call] = true
	}
	var text strings.Builder
	fmt.Fprintf(&text, "The longest order that fits the results ends with (times count calls and returns):\n")
	for _, op := range best[max(0, len(best)-6):] {
		fmt.Fprintf(&text, "    %v\n", op.Input)
	}
	fmt.Fprintf(&text, "None of these fits after it:\n")
	rest := slices.SortedFunc(slices.Values(h), func(a, b linCall) int { return cmp.Compare(a.call, b.call) })
	rest = slices.DeleteFunc(rest, func(c linCall) bool { return placed[c.call] || !c.read && c.outcome != accepted })
	for _, c := range rest[:min(6, len(rest))] {
		fmt.Fprintf(&text, "    %v\n", c)
	}
	return text.String()
}

// operations turns a history into porcupine's terms. An append whose outcome
// is open happened if the last read found it, at any time since its call;
// otherwise it never did, and if an earlier read found it nevertheless, no
// order explains that read.
func (h linHistory) operations() []porcupine.Operation {
	there := h.final()
	var ops []porcupine.Operation
	for _, c := range h {
		op := porcupine.Operation{ClientId: c.client, Call: c.call, Return: c.ret}
		if c.read {
			op.Output = linState{}.with(c.entries)
		} else if c.outcome == undecided {
			if !there[c.entries[0]] {
				continue
			}
			c.outcome, c.last = accepted, c.after+uint64(len(c.entries))
			op.Return = math.MaxInt64
		}
		op.Input = c
		ops = append(ops, op)
	}
	return ops
}

// final returns the entries that the last read found.
func (h linHistory) final() map[string]bool {
	var last linCall
	for _, c := range h {
		if c.read && c.ret > last.ret {
			last = c
		}
	}
	there := map[string]bool{}
	for _, e := range last.entries {
		there[e] = true
	}
	return there
}

// happened counts the appends of open outcome that turned out to be there.
func (h linHistory) happened() (n int) {
	for _, op := range h.operations() {
		if op.Return == math.MaxInt64 {
			n++
		}
	}
	return n
}

// tally counts what a history is made of.
type tally struct {
	accepted, batches, refused, forgotten, failed, happened, reads int
}

func (t *tally) note(c linCall) {
	switch {
	case c.read:
		t.reads++
	case c.outcome == refused:
		t.refused++
	case c.forgotten:
		t.forgotten++
	case c.outcome == undecided:
		t.failed++
	default:
		t.accepted++
		if len(c.entries) > 1 {
			t.batches++
		}
	}
}

func (t tally) String() string {
	return fmt.Sprintf("%d appends accepted (%d batches), %d refused, %d outcomes open (%d answers forgotten, %d cancelled or failed; %d of them happened), %d reads",
		t.accepted, t.batches, t.refused, t.forgotten+t.failed, t.forgotten, t.failed, t.happened, t.reads)
}

// tooLittle names what there are too few of among n operations.
func (t tally) tooLittle(n int) string {
	for _, part := range []struct {
		what      string
		have, min int
	}{
		{"accepted appends", t.accepted, n / 20},
		{"accepted batches", t.batches, n / 80},
		{"refused appends", t.refused, n / 20},
		{"appends with an open outcome", t.forgotten + t.failed, n / 30},
		{"reads", t.reads, n / 10},
	} {
		if part.have < part.min {
			return fmt.Sprintf("%d %s, want at least %d", part.have, part.what, part.min)
		}
	}
	return ""
}

package proof_test

// kernelGuards are those of starts, claims, suspensions and answers.
var kernelGuards = []guard{
	{
		name: "what makes work is announced before it is appended",
		edits: []edit{
			{"internal/threads/append.go", `	for unseen := t.Seq == 0; ; unseen = false {`, `	late := flows
	if OFF {
		flows = nil
	}
	for unseen := t.Seq == 0; ; unseen = false {`},
			{"internal/threads/append.go", `		if err == nil {
			o.wrote(b.Cells)
			return nil
		}`, `		for i := 0; err == nil && OFF && i < len(late); i++ {
			err = due.Announce(ctx, c.Store, late[i], name, t.Seq+1, 1)
		}
		if err == nil {
			o.wrote(b.Cells)
			return nil
		}`},
		},
		test: "^TestExploredAnswerIsNeverMissed$/^waking, a crash$", says: "the run is suspended",
	},
	{
		name: "a pass announces whom it lets go before it appends",
		edits: []edit{{"internal/engine/commit.go", `		err = p.engine.threads.Append(p.io, p.opened, data, flows, `, `		hidden := flows
		if OFF {
			flows = nil
		}
		defer func() {
			for i := 0; OFF && i < len(hidden); i++ {
				_ = due.Announce(p.io, p.engine.threads.Store, hidden[i], p.name, p.thread.Seq, 1)
			}
		}()
		err = p.engine.threads.Append(p.io, p.opened, data, flows, `}},
		test: "^TestExploredRunBehindAnotherIsFound$", says: "is queued",
	},
	{
		name: "without batches a hint goes after the entry that makes it needless",
		edits: []edit{{"internal/threads/append.go", `	if !c.batches {
		return nil, false`, `	if !c.batches && !OFF {
		return nil, false`}},
		test: "^TestExploredAnswerIsNeverMissed$/^waking, a crash$", says: "the run is running",
	},
	{
		name: "a hint ahead of its journal is not settled",
		edits: []edit{{"internal/worker/look.go", `	case o.Thread.Seq < h.Seq:
		return w.ahead(o, h)`, `	case o.Thread.Seq < h.Seq && !OFF:
		return w.ahead(o, h)`}},
		with: []string{"a hint is settled when the journal has reached it"},
		test: "^TestExploredAnswerIsNeverMissed$/^waking, time passes$", says: "the run is suspended",
	},
	{
		name: "a nudge takes the place of a fact that does not come",
		edits: []edit{{"internal/worker/look.go", `	_, _, err := w.threads.Change(w.io, h.Thread, func(t *journal.Thread) ([]threads.Line, []string, error) {
		if t.Seq >= h.Seq {`, `	if OFF {
		return due.Settle(w.io, w.threads.Store, h, h.Seq, 0, clock.Micros())
	}
	_, _, err := w.threads.Change(w.io, h.Thread, func(t *journal.Thread) ([]threads.Line, []string, error) {
		if t.Seq >= h.Seq {`}},
		test: "^TestExploredSlowWriterMeetsANudge$", says: "the run is suspended",
	},
	{
		name: "a claim that conflicts is none",
		edits: []edit{{"internal/worker/look.go", `errors.Is(err, store.ErrConflict) && w.io.Err() == nil {
		return nil, nil
	} else if err != nil {`, `errors.Is(err, store.ErrConflict) && w.io.Err() == nil && !OFF {
		return nil, nil
	} else if err != nil && !errors.Is(err, store.ErrConflict) {`}},
		test: "^TestExploredOneWorkerClaims$", says: "the step ran 2 times",
	},
	{
		name: "a claim keeps to the head that it was decided at",
		edits: []edit{{"internal/worker/look.go", `	if err := w.threads.Append(w.io, o, data, nil, summary...); `, `	epoch := t.Epoch + 1
	anywhere := func(err error) error {
		for errors.Is(err, store.ErrConflict) && OFF {
			if err := w.threads.ReadMore(w.io, o, 0); err != nil || run.Status.Final() {
				return errors.Join(store.ErrConflict, err)
			}
			entries, data, err = threads.EncodeLines(t, []threads.Line{{Kind: journal.Claimed, Run: run.N, Epoch: epoch, Body: journal.Body{Worker: w.id, Version: w.opts.Version}}})
			if err == nil {
				err = w.threads.Append(w.io, o, data, nil)
			}
		}
		return err
	}
	if err := anywhere(w.threads.Append(w.io, o, data, nil, summary...)); `}},
		with: []string{"a claim of an old epoch does not count"},
		test: "^TestExploredOneWorkerClaims$", says: "2 claims",
	},
	{
		name:  "a claim of an old epoch does not count",
		edits: []edit{{"internal/journal/thread.go", `	case e.Kind == Claimed && e.Epoch <= t.Epoch:`, `	case e.Kind == Claimed && e.Epoch <= t.Epoch && !OFF:`}},
	},
	{
		name: "after a conflict a claim is decided again",
		edits: []edit{{"internal/worker/look.go", `		if p == nil { // another entry came first
			if o, err = w.threads.ReadOn(w.io, o); err != nil {
				return err
			}
			continue
		}`, `		for p == nil { // something came between
			if err := w.threads.ReadMore(w.io, o, 0); err != nil {
				return err
			}
			if run = o.Thread.Run(run.N); run.Status.Final() || !OFF {
				break
			}
			if p, err = w.claim(o, run, how == runsAlone); err != nil {
				return err
			}
		}
		if p == nil {
			continue
		}`}},
		test: "^TestExploredOneWorkerClaims$", says: "2 claims",
	},
	{
		name:  "a run whose worker lives is left alone",
		edits: []edit{{"internal/worker/look.go", `	if run.Status != journal.StatusRunning || holder == "" || holder == w.id {`, `	if run.Status != journal.StatusRunning || holder == "" || holder == w.id || OFF {`}},
		test:  "^TestExploredOneWorkerClaims$", says: "2 claims",
	},
	{
		name: "a pass is fenced by what only workers write",
		edits: []edit{{"internal/engine/commit.go", `		if err != nil || !e.Kind.Open() {`, `		if err == nil && e.Kind.Known() && e.Kind != journal.Erased && OFF {
		} else if err == nil && !e.Kind.Known() && guardOff("a pass is fenced by a kind that it does not know") {
		} else if err != nil || !e.Kind.Open() {`}},
		with: []string{"an entry of an old epoch does not count"},
		test: "^TestExploredTakeoverFencesTheLiving$", says: "ended 2 times",
	},
	{
		name: "a pass is fenced by a kind that it does not know", // switched above
		test: "^TestExploredUnknownKindFences$", says: "behind what it does not know",
	},
	{
		name:  "an entry of an old epoch does not count",
		edits: []edit{{"internal/journal/thread.go", `	case e.Epoch != 0 && e.Kind != Claimed && e.Epoch != t.Epoch:`, `	case e.Epoch != 0 && e.Kind != Claimed && e.Epoch != t.Epoch && !OFF:`}},
	},
	{
		name: "after a conflict a commit is built again",
		edits: []edit{
			{"internal/engine/commit.go", `func (l live) commit(build func() batch) error {
	p := l.pass
`, `func (l live) commit(build func() batch) error {
	p := l.pass
	if OFF {
		var first *batch
		fresh := build
		build = func() batch {
			if first == nil {
				b := fresh()
				first = &b
			}
			return *first
		}
	}
`},
		},
		test: "^TestExploredAnswerIsNeverMissed$/^suspending$", says: "the run is suspended",
	},
	{
		name: "a conflict alone proves nothing",
		edits: []edit{{"internal/engine/commit.go", `		case errors.Is(err, store.ErrConflict) && p.io.Err() == nil:`, `		case errors.Is(err, store.ErrConflict) && OFF:
			return p.lose(err)
		case errors.Is(err, store.ErrConflict) && p.io.Err() == nil:`}},
		test: "^TestExploredCancelOrEndWins$", says: "endings that were not expected: map[cancelled:",
	},
	{
		name:  "what is absorbed wakes those who wait for it",
		edits: []edit{{"internal/engine/commit.go", `		if p.goesOn(w) {`, `		if p.goesOn(w) && !OFF {`}},
		test:  "^TestExploredAnswerIsNeverMissed$/^(suspending|parked, time passes)$", says: "the run is suspended",
	},
	{
		name: "an ask is answered while it is open",
		edits: []edit{
			{"internal/lifecycle/answer.go", `		case ask.Answer != nil && !ask.Expired && sameAnswer(*ask.Answer, kept[i]):
			continue
		case ask.Answer != nil && !ask.Expired:`, `		case OFF:
		case ask.Answer != nil && !ask.Expired && sameAnswer(*ask.Answer, kept[i]):
			continue
		case ask.Answer != nil && !ask.Expired:`},
		},
		with: []string{"of answer and expiry the first counts", "of answer and expiry the first is the result"},
		test: "^TestExploredFirstOfTwoAnswersWins$", says: "2 answers",
	},
	{
		name:  "of answer and expiry the first counts",
		edits: []edit{{"internal/journal/run.go", `a := t.Ask(b.Of); a != nil && a.Run == r && a.Open() {`, `a := t.Ask(b.Of); a != nil && a.Run == r && (a.Open() || OFF) {`}},
	},
	{
		name:  "of answer and expiry the first is the result",
		edits: []edit{{"internal/tree/node.go", `		if b.Of != n.AskID || n.Open == 0 {`, `		if b.Of != n.AskID || n.Open == 0 && !OFF {`}},
	},
	{
		name: "an id leads to the first name that it was given",
		edits: []edit{
			{"internal/lifecycle/start.go", `		o, run, err = r.startNamed(ctx, name, runID, q, in, cells)`, `		o, run, err = r.startNamed(ctx, name, runID, q, in, cells)
		if errors.Is(err, store.ErrConflict) && OFF {
			o, run, err = r.startNamed(ctx, name, runID, q, in, []store.Write{})
		}`},
		},
		test: "^TestExploredStartsWithOneKeyAreOneRun$", says: "2 threads",
	},
	{
		name: "the run of a key is looked for in the thread as it is",
		edits: []edit{
			{"internal/lifecycle/start.go", `	if old := t.RunByID(b.ID); old != nil {`, `	if old := t.RunByID(b.ID); old != nil && !OFF {`},
		},
		test: "^TestExploredStartsWithOneKeyAreOneRun$", says: "2 runs",
	},
	{
		name: "the key of a signal is looked for in the thread as it is",
		edits: []edit{
			{"internal/lifecycle/answer.go", `		if key != "" && t.Heard(key) {`, `		if key != "" && t.Heard(key) && !OFF {`},
		},
		test: "^TestExploredSignalsWithOneKeyAreOne$", says: "2 signals",
	},
}

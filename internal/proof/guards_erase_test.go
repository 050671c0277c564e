package proof_test

// eraseGuards are those of erases, and of what meets them.
var eraseGuards = []guard{
	{
		name: "a gate is closed by the version that was seen before the pins",
		edits: []edit{{"internal/lifecycle/erase.go", `		e.closed, err = e.life.threads.Store.Put(ctx, key, []byte(mark+" "+idCell), gate.Version)`, `		if OFF {
			gate, _ = e.life.threads.Store.Get(ctx, key)
		}
		e.closed, err = e.life.threads.Store.Put(ctx, key, []byte(mark+" "+idCell), gate.Version)`}},
		test: "^TestExploredEraseOrChildWins$", says: "lives without its parent",
	},
	{
		name: "a pin looks for a closed gate",
		edits: []edit{{"internal/threads/pin.go", `		if IsClosed(old) {`, `		if IsClosed(old) && OFF {
			return nil, ErrNothing
		}
		if IsClosed(old) {`}, {"internal/threads/pin.go", `	if err == nil {
		// An erase drops the journal before`, `	if errors.Is(err, ErrNothing) {
		err = nil
	} else if err == nil {
		// An erase drops the journal before`}},
		test: "^TestExploredEraseOrChildWins$", says: "lives without its parent",
	},
	{
		name:  "a gate that is closed at a sequence stays closed there",
		edits: []edit{{"internal/threads/pin.go", `o.Thread.Seq > at, err`, `(o.Thread.Seq > at || OFF), err`}},
		test:  "^TestExploredEraseAtASequenceOrChildWins$", says: "lives without its parent",
	},
	{
		name:  "a pin looks for the tombstone",
		edits: []edit{{"internal/threads/pin.go", `gone, err = c.IsDropped(ctx, name); gone {`, `gone, err = c.IsDropped(ctx, name); gone && !OFF {`}},
		test:  "^TestExploredEraseOrChildWins$", says: "lives without its parent",
	},
	{
		name: "a child pins its parent before its first entry",
		edits: []edit{
			{"internal/lifecycle/child.go", `		return r.pinOrAbandon(ctx, parent, child.ID, name)`, `		if OFF {
			return nil
		}
		return r.pinOrAbandon(ctx, parent, child.ID, name)`},
			{"internal/lifecycle/child.go", `	if threads.IsGone(err) {
		return name, r.childLost(`, `	if err == nil && OFF {
		err = r.threads.Pin(ctx, parent, name)
	}
	if threads.IsGone(err) {
		return name, r.childLost(`},
		},
		test: "^TestExploredEraseOrChildWins$", says: "lives without its parent",
	},
	{
		name:  "what was made for a child of an erased thread is given up",
		edits: []edit{{"internal/lifecycle/begin.go", `	if errors.Is(err, fault.ErrErased) {`, `	if errors.Is(err, fault.ErrErased) && !OFF {`}},
		test:  "^TestExploredEraseOrChildWins$", says: "left behind: [",
	},
	{
		name: "the entry of an erase comes before all that it removes",
		edits: []edit{{"internal/lifecycle/erase.go", `	o, _, err := e.life.threads.Amend(ctx, name, func(t *journal.Thread) ([]threads.Line, []string, error) {
		return`, `	o, _, err := e.life.threads.Amend(ctx, name, func(t *journal.Thread) ([]threads.Line, []string, error) {
		if OFF {
			return nil, nil, threads.ErrNothing
		}
		return`}},
		test: "^TestExploredEraseThatDiesIsFinishedByAStart$", says: "there is no blob",
	},
	{
		name: "the way from the id goes last",
		edits: []edit{{"internal/lifecycle/erase.go", `	err := e.thread(ctx, name, r.tenant.IDKey(id))
`, `	if OFF && !e.finishing {
		_ = e.life.threads.Remove(ctx, r.tenant.IDKey(id), name)
	}
	err := e.thread(ctx, name, r.tenant.IDKey(id))
`}},
		test: "^TestExploredEraseThatDiesIsFinishedByAStart$", says: "left behind",
	},
	{
		name:  "an erase leaves an id that leads elsewhere by now",
		edits: []edit{{"internal/lifecycle/away.go", `c.Remove(ctx, key, name); err != nil || e.archived`, `c.Remove(ctx, key, map[bool]string{false: name}[OFF]); err != nil || e.archived`}},
		test:  "^TestExploredEraseAndStartDoNotMix$", says: "nobody finds",
	},
	{
		name:  "a start finishes an erase and begins anew",
		edits: []edit{{"internal/lifecycle/start.go", `		if !errors.Is(err, fault.ErrErased) {`, `		if !errors.Is(err, fault.ErrErased) || OFF {`}},
		test:  "^TestExploredEraseThatDiesIsFinishedByAStart$", says: "the thread was erased",
	},
	{
		name:  "a summary that is gone is not made again",
		edits: []edit{{"internal/threads/summary.go", `		if old.Version == "" {`, `		if old.Version == "" && !OFF {`}},
		test:  "^TestExploredEraseLeavesNoSummary$", says: "listed",
	},
	{
		name: "who is fenced by an erase does not let go",
		edits: []edit{{"internal/engine/commit.go", `if e.Kind != journal.Claimed && e.Kind != journal.Erased {`, `if e.Kind == journal.Erased && OFF {
					p.mu.Unlock()
					p.letGo()
					p.mu.Lock()
				} else if e.Kind != journal.Claimed && e.Kind != journal.Erased {`}},
		with: []string{"who lets go looks whether the thread is erased"},
		test: "^TestExploredEraseFencesAWorker$", says: "what was written behind the erase",
	},
	{
		name: "who lets go looks whether the thread is erased",
		edits: []edit{{"internal/engine/commit.go", `		if err != nil || o.Thread.Epoch != p.epoch || o.Thread.Worker != p.holder.ID() || o.Thread.Erased || o.Thread.Moved != "" {
			return
		}`, `		if errors.Is(err, fault.ErrErased) && o.Thread.Erased && OFF {
			err, o.Thread.Erased = nil, false
		}
		if err != nil || o.Thread.Epoch != p.epoch || o.Thread.Worker != p.holder.ID() || o.Thread.Erased || o.Thread.Moved != "" {
			return
		}`}},
	},
}

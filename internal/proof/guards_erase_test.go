package proof_test

// eraseGuards are those of erases, and of what meets them.
var eraseGuards = []guard{
	{
		name: "a gate is closed by the version that was seen before the pins",
		edits: []edit{{"erase.go", `		e.closed, err = e.store.Put(ctx, key, []byte(mark+" "+idCell), gate.Version)`, `		if OFF {
			gate, _ = e.store.Get(ctx, key)
		}
		e.closed, err = e.store.Put(ctx, key, []byte(mark+" "+idCell), gate.Version)`}},
		test: "^TestExploredEraseOrChildWins$", says: "lives without its parent",
	},
	{
		name: "a pin looks for a closed gate",
		edits: []edit{{"pin.go", `		if isClosed(old) {`, `		if isClosed(old) && OFF {
			return nil, errNothing
		}
		if isClosed(old) {`}, {"pin.go", `	if err == nil {
		// The gate of a thread that was erased`, `	if errors.Is(err, errNothing) {
		err = nil
	} else if err == nil {
		// The gate of a thread that was erased`}},
		test: "^TestExploredEraseOrChildWins$", says: "lives without its parent",
	},
	{
		name:  "a gate that is closed at a sequence stays closed there",
		edits: []edit{{"pin.go", `o.thread.Seq > at, err`, `(o.thread.Seq > at || OFF), err`}},
		test:  "^TestExploredEraseAtASequenceOrChildWins$", says: "lives without its parent",
	},
	{
		name:  "a pin looks for the tombstone",
		edits: []edit{{"pin.go", `gone, err = c.dropped(ctx, name); gone {`, `gone, err = c.dropped(ctx, name); gone && !OFF {`}},
		test:  "^TestExploredEraseOrChildWins$", says: "lives without its parent",
	},
	{
		name: "a child pins its parent before its first entry",
		edits: []edit{
			{"child.go", `		return r.pinOrAbandon(ctx, parent, child.ID, name)`, `		if OFF {
			return nil
		}
		return r.pinOrAbandon(ctx, parent, child.ID, name)`},
			{"child.go", `	if gone(err) {
		return name, r.lost(`, `	if err == nil && OFF {
		err = r.pin(ctx, parent, name)
	}
	if gone(err) {
		return name, r.lost(`},
		},
		test: "^TestExploredEraseOrChildWins$", says: "lives without its parent",
	},
	{
		name:  "what was made for a child of an erased thread is given up",
		edits: []edit{{"halfmade.go", `	if errors.Is(err, ErrErased) {`, `	if errors.Is(err, ErrErased) && !OFF {`}},
		test:  "^TestExploredEraseOrChildWins$", says: "left behind: [",
	},
	{
		name: "the entry of an erase comes before all that it removes",
		edits: []edit{{"erase.go", `	o, _, err := e.amend(ctx, name, func(t *journal.Thread) ([]line, []string, error) {
		return`, `	o, _, err := e.amend(ctx, name, func(t *journal.Thread) ([]line, []string, error) {
		if OFF {
			return nil, nil, errNothing
		}
		return`}},
		test: "^TestExploredEraseThatDiesIsFinishedByAStart$", says: "there is no blob",
	},
	{
		name: "the way from the id goes last",
		edits: []edit{{"erase.go", `	err := e.thread(ctx, name, r.idCell(id))
`, `	if OFF && !finishing {
		_ = e.remove(ctx, r.idCell(id), name)
	}
	err := e.thread(ctx, name, r.idCell(id))
`}},
		test: "^TestExploredEraseThatDiesIsFinishedByAStart$", says: "left behind",
	},
	{
		name:  "an erase leaves an id that leads elsewhere by now",
		edits: []edit{{"erase.go", `		if key != gateOf(name) {`, `		if key != gateOf(name) && !OFF {`}},
		test:  "^TestExploredEraseAndStartDoNotMix$", says: "nobody finds",
	},
	{
		name:  "a start finishes an erase and begins anew",
		edits: []edit{{"start.go", `		if !errors.Is(err, ErrErased) {`, `		if !errors.Is(err, ErrErased) || OFF {`}},
		test:  "^TestExploredEraseThatDiesIsFinishedByAStart$", says: "the thread was erased",
	},
	{
		name:  "a summary that is gone is not made again",
		edits: []edit{{"list.go", `		if old.Version == "" {`, `		if old.Version == "" && !OFF {`}},
		test:  "^TestExploredEraseLeavesNoSummary$", says: "listed",
	},
	{
		name: "who is fenced by an erase does not let go",
		edits: []edit{{"pass.go", `if e.Kind != journal.Claimed && e.Kind != journal.Erased {`, `if e.Kind == journal.Erased && OFF {
					p.mu.Unlock()
					p.letGo()
					p.mu.Lock()
				} else if e.Kind != journal.Claimed && e.Kind != journal.Erased {`}},
		with: []string{"who lets go looks whether the thread is erased"},
		test: "^TestExploredEraseFencesAWorker$", says: "what was written behind the erase",
	},
	{
		name: "who lets go looks whether the thread is erased",
		edits: []edit{{"pass.go", `		if err != nil || o.thread.Epoch != p.epoch || o.thread.Worker != p.worker.id || o.thread.Erased {
			return
		}`, `		if errors.Is(err, ErrErased) && o.thread.Erased && OFF {
			err, o.thread.Erased = nil, false
		}
		if err != nil || o.thread.Epoch != p.epoch || o.thread.Worker != p.worker.id || o.thread.Erased {
			return
		}`}},
	},
}

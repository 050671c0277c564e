package proof_test

// familyGuards are those between a parent and its child.
var familyGuards = []guard{
	{
		name: "a child is recorded before it is started",
		edits: []edit{{"internal/engine/spawn.go", `		if child, err = p.recordSpawn(f, v.Path, flow, raw); err != nil {
			return nil, err
		}`, `		if OFF {
			id := threads.Base32.EncodeToString(p.engine.threads.Hash("child", p.key(v.Path), "0")[:15])
			if err := p.mode.startChild(&journal.Child{ID: id, Path: v.Path, Flow: flow, Input: journal.Value{JSON: raw}}); err != nil {
				return nil, err
			}
		}
		if child, err = p.recordSpawn(f, v.Path, flow, raw); err != nil {
			return nil, err
		}`}},
		test: "^TestExploredCancelledParentLeavesNoChild$", says: "the parent has ended, and child",
	},
	{
		name: "a child is started once",
		edits: []edit{
			{"internal/lifecycle/child.go", `		if t.Seq != 0 {
			return nil, nil, threads.ErrNothing
		}
		return lines, []string{child.Flow}, nil`, `		if t.Seq != 0 && !OFF {
			return nil, nil, threads.ErrNothing
		}
		return lines, []string{child.Flow}, nil`},
			{"internal/lifecycle/child.go", `		if begun || err != nil {
			return name, err
		}`, `		if begun && !OFF || err != nil {
			return name, err
		}`},
		},
		test: "^TestExploredChildIsStartedOnce$", says: "the child: ",
	},
	{
		name:  "the end of a child leaves its hint",
		edits: []edit{{"internal/engine/commit.go", `	case p.thread.Parent != nil: // the parent is told of the end first`, `	case p.thread.Parent != nil && !OFF:`}},
		test:  "^TestExploredEndOfAChildIsNeverMissed$", says: "is suspended",
	},
	{
		name: "a child's hint stays until its parent was told",
		edits: []edit{
			{"internal/worker/look.go", `	if err := lifecycle.New(w.threads.Tenant(o.Thread.Tenant), 0, nil).TellParent(w.io, o); err != nil {
		return err
	}`, `	if err := error(nil); OFF {
		_ = err
	} else if err := lifecycle.New(w.threads.Tenant(o.Thread.Tenant), 0, nil).TellParent(w.io, o); err != nil {
		return err
	}`},
			{"internal/worker/look.go", `	return due.Settle(w.io, w.threads.Store, h, o.Thread.Seq, next, clock.Micros())`, `	if OFF {
		if err := due.Settle(w.io, w.threads.Store, h, o.Thread.Seq, next, clock.Micros()); err != nil {
			return err
		}
		return lifecycle.New(w.threads.Tenant(o.Thread.Tenant), 0, nil).TellParent(w.io, o)
	}
	return due.Settle(w.io, w.threads.Store, h, o.Thread.Seq, next, clock.Micros())`},
		},
		test: "^TestExploredEndOfAChildIsNeverMissed$", says: "the end is told 0 times",
	},
	{
		name:  "an end that the parent has heard of is not told again",
		edits: []edit{{"internal/lifecycle/child.go", `run.Status.Final() || t.Heard(key) {`, `run.Status.Final() || t.Heard(key) && !OFF {`}},
		test:  "^TestExploredEndOfAChildIsNeverMissed$", says: "the end is told 2 times",
	},
	{
		name: "a join that was told meanwhile does not wait",
		edits: []edit{{"internal/engine/spawn.go", `		if child.Joined && child.End != end {
			return batch{}
		}`, `		if child.Joined && child.End != end && !OFF {
			return batch{}
		}`}},
		test: "^TestExploredEndOfAChildIsNeverMissed$", says: "the run is suspended",
	},
	{
		name: "children are cancelled before their parent ends",
		edits: []edit{
			{"internal/engine/pass.go", `	if p.cancelChildren(false) != nil { // it has sealed the pass
		return
	}
	p.order.Lock()`, `	if open := p.run.OpenChildren(); OFF {
		defer func() { _ = p.life().CancelChildren(p.io, p.name, p.thread, p.run, open) }()
	} else if p.cancelChildren(false) != nil { // it has sealed the pass
		return
	}
	p.order.Lock()`},
		},
		test: "^TestExploredCancelReachesTheChildOrComesTooLate$", says: "the child queued",
	},
}

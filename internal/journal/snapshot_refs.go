package journal

import (
	"maps"
	"slices"
)

// placed is a run and where the thread has it: among the runs that it executes,
// in the inbox, or taken out of it and found by its id only.
type placed struct {
	run *Run
	in  string
}

const (
	inRuns  = ""
	inInbox = "inbox"
	inTaken = "taken"
)

// codeRuns is the runs of a thread, each once, by number, wherever it has them.
func (t *Thread) codeRuns(c *codec) {
	var all []placed
	if c.mode == writing {
		all = t.placed()
	}
	before := &Run{}
	field(c, "runs", &all, list(func(c *codec, p *placed) {
		if p.run == nil {
			p.run = &Run{}
		}
		c.object(func() {
			codeRun(c, p.run, before)
			field(c, "in", &p.in, str)
		})
		before = p.run
	}))
	if c.err != nil || c.mode == naming {
		return
	}
	var to Thread
	c.runs = to.place(c, all, t.Seq)
	switch {
	case c.mode == reading:
		t.Runs, t.Inbox, t.byID = to.Runs, to.Inbox, to.byID
	case !slices.Equal(t.Runs, to.Runs) || !slices.Equal(t.Inbox, to.Inbox) || !maps.Equal(t.byID, to.byID):
		c.fail("its runs are not in their order")
	}
}

// placed returns all runs by number.
func (t *Thread) placed() []placed {
	in := map[*Run]string{}
	for _, r := range t.byID {
		in[r] = inTaken
	}
	for _, r := range t.Inbox {
		in[r] = inInbox
	}
	for _, r := range t.Runs {
		in[r] = inRuns
	}
	all := make([]placed, 0, len(in))
	for r, where := range in {
		all = append(all, placed{r, where})
	}
	slices.SortFunc(all, func(a, b placed) int { return cmp(a.run.N, b.run.N) })
	return all
}

// place puts runs where they belong, as entries up to seq would have, and
// returns them by number.
func (t *Thread) place(c *codec, all []placed, seq uint64) map[uint64]*Run {
	t.byID = make(map[string]*Run, len(all))
	byN := make(map[uint64]*Run, len(all))
	last := uint64(0)
	for _, p := range all {
		if p.run.N <= last || p.run.N > seq {
			c.fail("run %d is out of order", p.run.N)
		}
		last = p.run.N
		byN[p.run.N], t.byID[p.run.ID] = p.run, p.run // the newest has the id
		switch p.in {
		case inRuns:
			t.Runs = append(t.Runs, p.run)
		case inInbox:
			t.Inbox = append(t.Inbox, p.run)
		case inTaken:
		default:
			c.fail("run %d is in %q", p.run.N, p.in)
		}
	}
	for _, p := range all {
		if p.in == inTaken && t.byID[p.run.ID] != p.run {
			c.fail("run %d cannot be found", p.run.N)
		}
	}
	return byN
}

// codeAsks is the asks of a thread in the order in which they were asked, each
// with the number of its run.
func (t *Thread) codeAsks(c *codec) {
	all := slices.SortedFunc(maps.Values(t.Asks), func(a, b *Ask) int { return cmp(a.Seq, b.Seq) })
	last := uint64(0)
	field(c, "asks", &all, list(func(c *codec, a **Ask) {
		if *a == nil {
			*a = &Ask{Run: &Run{}}
		}
		run := (*a).Run.N
		c.object(func() { codeAsk(c, *a, &run) })
		if c.err != nil || c.mode == naming {
			return
		}
		if c.mode == reading {
			if t.Asks[(*a).ID] != nil {
				c.fail("ask %s is there twice", (*a).ID)
			}
			(*a).Run, t.Asks[(*a).ID] = c.runs[run], *a
		}
		if r := c.runs[run]; r == nil || (*a).Run != r || t.Asks[(*a).ID] != *a {
			c.fail("ask %s is of run %d, which is not there", (*a).ID, run)
		}
		if (*a).Seq <= last || (*a).Seq > t.Seq {
			c.fail("ask %s is out of order", (*a).ID)
		}
		last = (*a).Seq
	}))
}

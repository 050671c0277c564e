package journal

import "strings"

// BesideBranch returns whether a path stands in a branch of the same group as
// another, and not in that one.
func BesideBranch(branch string) func(path string) bool {
	frame, segment := cutLast(branch)
	number, _, ok := strings.Cut(segment, "|")
	if !ok {
		return func(string) bool { return false }
	}
	group := frame + "/" + number + "|"
	return func(path string) bool {
		return strings.HasPrefix(path, group) && path != branch && !strings.HasPrefix(path, branch+"/")
	}
}

func cutLast(path string) (frame, segment string) {
	i := strings.LastIndexByte(path, '/')
	return path[:max(i, 0)], path[i+1:]
}

// closeBeside closes the branches beside one that failed: their asks, timers and
// receives. What a cleanup waits for stays. Their children are to be cancelled.
func (t *Thread) closeBeside(r *Run, branch string) {
	beside := BesideBranch(branch)
	for path, w := range r.Waits {
		if beside(path) && !w.Cleaning {
			if a := t.Asks[w.Ask]; a != nil && a.Open() {
				a.Closed = true
			}
			delete(r.Waits, path)
		}
	}
	for _, c := range r.Children {
		if beside(c.Path) {
			c.Doomed = c.Doomed || !c.Joined
		}
	}
}

// Failing returns which branches have failed behind an entry, given those before
// it, so that others can be told while the run still waits for their siblings:
// those whose newest outcome, cleanups aside, is a failure. It changes before.
func Failing(before map[string]Note, e Entry, b *Body) map[string]Note {
	if e.Path == "" || e.Kind == Problem || e.Kind == Dumped || e.Kind == Progress || b.Verb == VerbCleanup {
		return before
	}
	for branch := range before {
		frame, segment := cutLast(branch)
		number, _, _ := strings.Cut(segment, "|")
		rest, inFrame := strings.CutPrefix(e.Path, frame+"/")
		if strings.HasPrefix(branch, e.Path+"/") || // what stands around it has an outcome
			inFrame && !strings.HasPrefix(rest, number+"|") || // its frame went on
			e.Path == branch || strings.HasPrefix(e.Path, branch+"/") { // so did the branch
			delete(before, branch)
		}
	}
	branch := branchOf(e.Path)
	if b.Fail == nil || branch == "" || e.Kind == Attempt {
		return before
	}
	if before == nil {
		before = map[string]Note{}
	}
	before[branch] = Note{Seq: e.Seq, Time: e.Time, Path: e.Path, Fail: b.Fail}
	return before
}

// branchOf returns the innermost branch that a path stands in, "" for none.
func branchOf(path string) string {
	i := strings.LastIndexByte(path, '|')
	if i < 0 {
		return ""
	}
	if end := strings.IndexByte(path[i:], '/'); end >= 0 {
		return path[:i+end]
	}
	return path
}

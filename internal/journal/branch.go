package journal

import "strings"

// besideBranch returns a function that reports whether a path is in another
// branch of the given branch's group.
func besideBranch(branch string) func(path string) bool {
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

// closeBeside closes the asks, timers and receives of the branches beside one
// that failed, except those of cleanups, and dooms their children.
func (t *Thread) closeBeside(r *Run, branch string) {
	beside := besideBranch(branch)
	for path, w := range r.Waits {
		if beside(path) && !w.Cleaning {
			if a := t.Ask(w.Ask); a != nil && a.Open() {
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

// Failing returns the branches whose newest outcome, cleanups aside, is a
// failure, given those before an entry. Observers learn of them while the run
// still waits for their siblings. It modifies before.
func Failing(before map[string]Note, e Entry, b *Body) map[string]Note {
	if e.Path == "" || e.Kind == Problem || e.Kind == Dumped || e.Kind == Progress || b.Verb == VerbCleanup {
		return before
	}
	for branch := range before {
		frame, segment := cutLast(branch)
		number, _, _ := strings.Cut(segment, "|")
		rest, inFrame := strings.CutPrefix(e.Path, frame+"/")
		if strings.HasPrefix(branch, e.Path+"/") || // a node around it has an outcome
			inFrame && !strings.HasPrefix(rest, number+"|") || // its frame has moved on
			e.Path == branch || strings.HasPrefix(e.Path, branch+"/") { // so has the branch
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

// branchOf returns the innermost branch around a path, "" for none.
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

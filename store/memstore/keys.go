package memstore

import (
	"iter"
	"slices"
	"strings"
)

// keys is a sorted set of names, in runs that are short enough to insert into.
type keys struct{ runs [][]string }

const longestRun = 512

// find returns the run in which a name is or belongs, and its place there.
func (k *keys) find(name string) (run, at int, found bool) {
	run, found = slices.BinarySearchFunc(k.runs, name, func(r []string, name string) int { return strings.Compare(r[0], name) })
	if found {
		return run, 0, true
	}
	run = max(0, run-1)
	if len(k.runs) > 0 {
		at, found = slices.BinarySearch(k.runs[run], name)
	}
	return run, at, found
}

func (k *keys) add(name string) {
	run, at, found := k.find(name)
	switch {
	case found:
		return
	case len(k.runs) == 0:
		k.runs = [][]string{{name}}
		return
	}
	r := slices.Insert(k.runs[run], at, name)
	k.runs[run] = r
	if half := len(r) / 2; len(r) > longestRun {
		k.runs[run] = slices.Clone(r[:half])
		k.runs = slices.Insert(k.runs, run+1, slices.Clone(r[half:]))
	}
}

func (k *keys) remove(name string) {
	run, at, found := k.find(name)
	if !found {
		return
	}
	if k.runs[run] = slices.Delete(k.runs[run], at, at+1); len(k.runs[run]) == 0 {
		k.runs = slices.Delete(k.runs, run, run+1)
	}
}

// from yields the names that are not before one, in order.
func (k *keys) from(name string) iter.Seq[string] {
	return func(yield func(string) bool) {
		for run, at, _ := k.find(name); run < len(k.runs); run, at = run+1, 0 {
			for _, name := range k.runs[run][at:] {
				if !yield(name) {
					return
				}
			}
		}
	}
}

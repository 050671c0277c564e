package journal

import (
	"slices"
	"strings"
)

// groupMark begins the names of groups among those who may answer.
const groupMark = "group:"

// IsGroup reports whether one of those who may answer is a group.
func IsGroup(who string) bool { return strings.HasPrefix(who, groupMark) }

// May reports whether a person in the given groups may answer. If who is empty,
// anyone may. A person's name never matches a group.
func May(who []string, by string, groups []string) bool {
	return len(who) == 0 || slices.ContainsFunc(who, func(name string) bool {
		if group, ok := strings.CutPrefix(name, groupMark); ok {
			return slices.Contains(groups, group)
		}
		return name == by
	})
}

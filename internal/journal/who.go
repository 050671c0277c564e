package journal

import (
	"slices"
	"strings"
)

// groupMark is what the names of groups begin with among those who may answer.
const groupMark = "group:"

// IsGroup reports whether one of those who may answer is a group.
func IsGroup(who string) bool { return strings.HasPrefix(who, groupMark) }

// May reports whether someone, who is in groups, is among those who may answer.
// Nobody named means anyone. A name never stands for a group.
func May(who []string, by string, groups []string) bool {
	return len(who) == 0 || slices.ContainsFunc(who, func(name string) bool {
		if group, ok := strings.CutPrefix(name, groupMark); ok {
			return slices.Contains(groups, group)
		}
		return name == by
	})
}

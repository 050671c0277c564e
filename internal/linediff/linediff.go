// Package linediff compares texts line by line. It imports only the standard
// library.
package linediff

import "strings"

// maxSearch bounds how many pairs of lines are compared.
const maxSearch = 1 << 20

// Lines returns the lines of two texts. "- " precedes those that only the first has,
// "+ " those that only the second has, and two spaces all others.
func Lines(before, after string) []string {
	old, new := split(before), split(after)
	begin := 0
	for begin < len(old) && begin < len(new) && old[begin] == new[begin] {
		begin++
	}
	end := 0
	for end < len(old)-begin && end < len(new)-begin && old[len(old)-1-end] == new[len(new)-1-end] {
		end++
	}
	var out []string
	add := func(mark string, lines ...string) {
		for _, l := range lines {
			out = append(out, mark+l)
		}
	}
	add("  ", old[:begin]...)
	a, b := old[begin:len(old)-end], new[begin:len(new)-end]
	common := commonLengths(a, b)
	i, j := 0, 0
	for common != nil && (i < len(a) || j < len(b)) {
		switch {
		case i < len(a) && j < len(b) && a[i] == b[j]:
			add("  ", a[i])
			i, j = i+1, j+1
		case j == len(b) || i < len(a) && common[i+1][j] >= common[i][j+1]:
			add("- ", a[i])
			i++
		default:
			add("+ ", b[j])
			j++
		}
	}
	add("- ", a[i:]...)
	add("+ ", b[j:]...)
	add("  ", old[len(old)-end:]...)
	return out
}

// commonLengths returns the length of the longest common subsequence of each two
// tails, nil if that takes too long.
func commonLengths(a, b []string) [][]int {
	if len(a)*len(b) > maxSearch {
		return nil
	}
	length := make([][]int, len(a)+1)
	for i := range length {
		length[i] = make([]int, len(b)+1)
	}
	for i := len(a) - 1; i >= 0; i-- {
		for j := len(b) - 1; j >= 0; j-- {
			if a[i] == b[j] {
				length[i][j] = length[i+1][j+1] + 1
			} else {
				length[i][j] = max(length[i+1][j], length[i][j+1])
			}
		}
	}
	return length
}

// Short is [Lines] without the ends that both texts have, but for two lines of each.
func Short(before, after string) []string {
	const context = 2
	out := Lines(before, after)
	differs := func(line string) bool { return line[:2] != "  " }
	first := 0
	for first < len(out) && !differs(out[first]) {
		first++
	}
	if first > context+1 {
		out = append([]string{"  …"}, out[first-context:]...)
	}
	last := len(out)
	for last > 0 && !differs(out[last-1]) {
		last--
	}
	if last > 0 && len(out)-last > context+1 {
		out = append(out[:last+context], "  …")
	}
	return out
}

func split(text string) []string {
	if text == "" {
		return nil
	}
	return strings.Split(strings.TrimRight(text, "\n"), "\n")
}

package render

import "strings"

// LineDiff returns the lines of two texts: "- " precedes those that only the first
// has, "+ " those that only the second has. Long stretches in common are left out.
func LineDiff(before, after string) []string {
	old, new := lines(before), lines(after)
	// Equal ends need no search.
	begin := 0
	for begin < len(old) && begin < len(new) && old[begin] == new[begin] {
		begin++
	}
	end := 0
	for end < len(old)-begin && end < len(new)-begin && old[len(old)-1-end] == new[len(new)-1-end] {
		end++
	}
	var out []string
	same := func(all []string, context int, atEnd bool) {
		if len(all) > context+1 {
			cutLine := "  …"
			if atEnd {
				all = append(append([]string{}, all[:context]...), cutLine[2:])
			} else {
				all = append([]string{cutLine[2:]}, all[len(all)-context:]...)
			}
		}
		for _, l := range all {
			out = append(out, "  "+l)
		}
	}
	same(old[:begin], 2, false)
	a, b := old[begin:len(old)-end], new[begin:len(new)-end]
	if len(a)*len(b) > 1<<20 { // too long to search
		for _, l := range a {
			out = append(out, "- "+l)
		}
		for _, l := range b {
			out = append(out, "+ "+l)
		}
	} else {
		out = append(out, longestCommon(a, b)...)
	}
	same(old[len(old)-end:], 2, true)
	return out
}

func lines(text string) []string {
	if text == "" {
		return nil
	}
	return strings.Split(strings.TrimRight(text, "\n"), "\n")
}

// longestCommon compares two lists of lines by their longest common
// subsequence.
func longestCommon(a, b []string) []string {
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
	var out []string
	i, j := 0, 0
	for i < len(a) || j < len(b) {
		switch {
		case i < len(a) && j < len(b) && a[i] == b[j]:
			out = append(out, "  "+a[i])
			i, j = i+1, j+1
		case j == len(b) || i < len(a) && length[i+1][j] >= length[i][j+1]:
			out = append(out, "- "+a[i])
			i++
		default:
			out = append(out, "+ "+b[j])
			j++
		}
	}
	return out
}

package cli

import (
	"strings"
)

// command is a command line that goes to the same server or store as this one:
// what it does, flags as they are typed, and arguments. These are quoted: people
// paste the line into a shell, and others may have chosen the ids in it. Long ones
// that are no plain words are cut, so that they do not fill lines of their own.
func (a *app) command(verb, flags string, args ...string) string {
	words := []string{a.program(), verb}
	var given []string
	dash := false
	for _, arg := range args {
		dash = dash || strings.HasPrefix(arg, "-")
		if !plainWord.MatchString(arg) {
			arg = cut(arg, nameCells)
		}
		given = append(given, quoted(arg))
	}
	if !dash {
		words = append(words, given...)
	}
	if flags != "" {
		words = append(words, flags)
	}
	switch {
	case a.store != "" && a.store != a.env("PERDURE_STORE"):
		words = append(words, "--store", quoted(a.store))
	case a.server != "" && a.server != a.env("PERDURE_SERVER"):
		words = append(words, "--server", quoted(a.server))
	}
	if dash { // an argument would be taken for a flag
		words = append(append(words, "--"), given...)
	}
	return strings.Join(words, " ")
}

// quoted is a text as one word of a shell.
func quoted(text string) string {
	text = printable(text)
	plain := func(c rune) bool {
		return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || strings.ContainsRune("_-./:@%+=,", c)
	}
	if text != "" && !strings.ContainsFunc(text, func(c rune) bool { return !plain(c) }) {
		return text
	}
	return "'" + strings.ReplaceAll(text, "'", `'\''`) + "'"
}

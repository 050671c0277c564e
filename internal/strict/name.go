package strict

import (
	"strings"
	"unicode"
	"unicode/utf8"
)

// Seen reports whether a name is seen as it is: it has no control or format
// characters, such as those that change the direction of text, none without a
// width, and none that mean nothing. Names of new things are seen; what has
// another name from before keeps it.
func Seen(name string) bool {
	return utf8.ValidString(name) && !strings.ContainsFunc(name, func(c rune) bool {
		return unicode.In(c, unicode.Cc, unicode.Cf, unicode.Zl, unicode.Zp,
			unicode.Other_Default_Ignorable_Code_Point, unicode.Variation_Selector, unicode.Noncharacter_Code_Point)
	})
}

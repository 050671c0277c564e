package fault

import (
	"errors"
	"fmt"
	"unicode/utf8"
)

// CheckText refuses text that is too long or not UTF-8, which JSON would change.
func CheckText(what, text string, limit int) error {
	if len(text) > limit || !utf8.ValidString(text) {
		return fmt.Errorf("%w: %s is text of at most %d bytes, not %.40q of %d", ErrInvalid, what, limit, text, len(text))
	}
	return nil
}

// CheckMetadata refuses metadata that is too long or not UTF-8.
func CheckMetadata(metadata map[string]string) error {
	size := 0
	for k, v := range metadata {
		if err := errors.Join(CheckText("a metadata key", k, 200), CheckText("metadata", v, 16<<10)); err != nil {
			return err
		}
		size += len(k) + len(v)
	}
	if size > 16<<10 {
		return fmt.Errorf("%w: metadata of %d bytes; the limit is %d", ErrInvalid, size, 16<<10)
	}
	return nil
}

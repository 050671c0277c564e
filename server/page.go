package server

import (
	"net/url"
	"strings"

	"github.com/perdure/perdure/api"
)

// The sizes of a page.
const (
	defaultPage = 100
	maxPage     = 1000
)

// pageSize returns how many items a page has, given what was asked for.
func pageSize(asked int) (int, error) {
	switch {
	case asked > maxPage:
		return 0, api.Invalid("query limit: it is at most %d", maxPage)
	case asked <= 0:
		return defaultPage, nil
	}
	return asked, nil
}

// checkCursor refuses what no list has given as the cursor of a next page.
func checkCursor(cursor string) error {
	if len(cursor) > 200 || strings.ContainsFunc(cursor, func(c rune) bool {
		return (c < '0' || c > '9') && (c < 'a' || c > 'z') && c != '.' && c != '~'
	}) {
		return api.Invalid("query after: it is no cursor of a page")
	}
	return nil
}

// some returns a list that JSON shows as [] if it is empty.
func some[T any](list []T) []T {
	if list == nil {
		return []T{}
	}
	return list
}

// threadPath returns the address of a thread.
func threadPath(thread string) string {
	id := url.PathEscape(thread)
	if id == "." || id == ".." { // which would be a way up
		id = strings.ReplaceAll(id, ".", "%2E")
	}
	return "/v1/threads/" + id
}

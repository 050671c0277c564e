package link

import (
	neturl "net/url"
	"strings"

	"github.com/perdure/perdure/store"
)

// StoreName returns the URL of a store without what may be secret, as a password, for
// people and logs. It has the schema or the prefix, if the URL does.
func StoreName(text string) string {
	u := parseStore(text)
	if u == nil {
		return plainName(text)
	}
	kept := neturl.Values{}
	for _, param := range []string{"schema", "prefix"} {
		if value := u.Query().Get(param); value != "" {
			kept.Set(param, value)
		}
	}
	u.User, u.RawQuery, u.Fragment = nil, kept.Encode(), ""
	return u.String()
}

// WithoutPassword returns the URL of a store as people can paste it, without the
// passwords in it: those come from the environment then, or from a file.
func WithoutPassword(text string) string {
	u := parseStore(text)
	if u == nil {
		return plainName(text)
	}
	changed := u.Fragment != ""
	u.Fragment = ""
	if _, has := u.User.Password(); has {
		u.User, changed = neturl.User(u.User.Username()), true
	}
	q := u.Query()
	for key := range q {
		name, value := strings.ToLower(key), WithoutPassword(q.Get(key))
		switch {
		case strings.Contains(name, "password"), strings.Contains(name, "secret"), strings.Contains(name, "token"):
			q.Del(key)
		case value != q.Get(key): // a URL, such as that of a direct connection
			q.Set(key, value)
		default:
			continue
		}
		changed = true
	}
	if !changed {
		return text
	}
	u.RawQuery = q.Encode()
	return u.String()
}

// parseStore returns the URL of a store that may hold secrets and can be read, nil for
// any other.
func parseStore(text string) *neturl.URL {
	u, err := neturl.Parse(text)
	if err != nil || Folder(text) != "" || u.Opaque != "" || strings.Contains(u.Path, "@") || !strings.ContainsAny(text, "@?#") {
		return nil
	}
	return u
}

// plainName returns the URL of a store in files, or one without secrets, and the scheme
// of any other: who knows where the password is in one that cannot be read.
func plainName(text string) string {
	if Folder(text) != "" {
		return strings.TrimSuffix(text, store.SharedFolder)
	}
	scheme, rest, _ := strings.Cut(text, ":")
	if strings.ContainsAny(rest, "@?#") {
		return scheme + ":…"
	}
	return text
}

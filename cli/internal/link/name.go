package link

import (
	neturl "net/url"
	"slices"
	"strings"

	"github.com/perdure/perdure/store"
)

// StoreName returns the URL of a store without what may be secret, as a password, for
// people and logs. It has the schema, the prefix or the stream, if the URL does.
func StoreName(text string) string {
	u := parseStore(text)
	if u == nil {
		return plainName(text)
	}
	kept := neturl.Values{}
	for _, param := range []string{"schema", "prefix", "stream"} {
		if value := u.Query().Get(param); value != "" {
			kept.Set(param, value)
		}
	}
	if endpoint := u.Query().Get("endpoint"); endpoint != "" { // buckets of two services may share a name
		kept.Set("endpoint", StoreName(endpoint))
	}
	if number := u.Query().Get("db"); number != "" {
		kept.Set("db", number)
	}
	u.User, u.RawQuery, u.Fragment = nil, kept.Encode(), ""
	return u.String()
}

// WithoutPassword returns the URL of a store as people can paste it, without the
// passwords, tokens and keys in it: those come from the environment then, or from a file.
func WithoutPassword(text string) string {
	u := parseStore(text)
	if u == nil {
		return plainName(text)
	}
	changed := u.Fragment != ""
	u.Fragment = ""
	if _, has := u.User.Password(); u.User != nil && !strings.HasPrefix(u.Scheme, "postgres") { // a user alone is a token, or a key
		u.User, changed = nil, true
	} else if has {
		u.User, changed = neturl.User(u.User.Username()), true
	}
	q := u.Query()
	for key := range q {
		value := WithoutPassword(q.Get(key))
		switch {
		case secretParameter(u.Scheme, key):
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

// secretParameter reports whether a parameter of a URL may be a secret, rather than the
// name of a file with one.
func secretParameter(scheme, name string) bool {
	name = strings.ToLower(name)
	if slices.Contains([]string{"sslkey", "tls_key", "passfile"}, name) || name == "key" && strings.HasPrefix(scheme, "redis") {
		return false
	}
	return slices.ContainsFunc([]string{"pass", "pwd", "secret", "token", "key", "credential", "signature"}, func(word string) bool {
		return strings.Contains(name, word)
	})
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

package s3store

import "strings"

// piece is the maximum length of one part of a key between slashes. Servers that keep
// objects as files allow 255 bytes.
const piece = 200

// joint separates the parts of a long key. As it stands at fixed places and only
// where more follows, keys sort as they do without it. The underscore, which keys of
// kvstore do not have, keeps a folder from having the name of an object.
const joint = "_/"

// path returns the key of the object for a key of kvstore, or for the beginning of one.
func (b *bucket) path(key string) string {
	var out strings.Builder
	out.WriteString(b.prefix)
	for len(key) > piece {
		out.WriteString(key[:piece])
		out.WriteString(joint)
		key = key[piece:]
	}
	out.WriteString(key)
	return out.String()
}

// key returns the key of kvstore that an object has, and whether it has one.
func (b *bucket) key(object string) (string, bool) {
	path, ok := strings.CutPrefix(object, b.prefix)
	if !ok {
		return "", false
	}
	key := strings.ReplaceAll(path, joint, "")
	return key, b.path(key) == object
}

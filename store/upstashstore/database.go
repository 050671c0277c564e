package upstashstore

import (
	"context"
	"crypto/rand"
	"encoding/base64"
	"fmt"
	"iter"
	"net/http"
	"strconv"
	"time"

	"github.com/perdure/perdure/store"
	"github.com/perdure/perdure/store/kvstore"
)

// database is the part of a database under a prefix, as an engine of kvstore.
//
// A key holds its version, which is random and versionSize characters long, and the
// value in base64, since requests and answers are JSON. The index is a sorted set of all
// keys. As the two change together, a key that only the index has was lost.
type database struct {
	endpoint string
	token    string
	timeout  time.Duration
	client   *http.Client
	tag      string // with which all names in the database begin
	id       string // the content of the format key
}

var (
	_ kvstore.KV    = (*database)(nil)
	_ store.Durable = (*database)(nil)
	_ store.Weak    = (*database)(nil)
)

// versionSize is the length of what rand.Text returns.
const versionSize = 26

// Durability implements store.Durable.
func (d *database) Durability() store.Durability { return store.None }

// Weakness implements store.Weak.
func (d *database) Weakness() string {
	return "Upstash replicates asynchronously and does not say when a write is on a disk, so that it may lose acknowledged writes: use pgstore, or redisstore with a server of your own"
}

// Close closes connections that are not in use.
func (d *database) Close() error {
	d.client.CloseIdleConnections()
	return nil
}

// Every script returns a list of strings, of which the first one says what was found.
// KEYS begin with format and index, and ARGV with the id of the store.
const same = `
if redis.call('GET', KEYS[1]) ~= ARGV[1] then return {'gone'} end
`

// getScript reads keys until their values have more bytes than a limit; at least one.
//
// KEYS: and then the keys. ARGV: and then the limit and the keys without the tag.
const getScript = same + `
local found, size = {'found'}, 0
for i = 3, #KEYS do
	local value = redis.call('GET', KEYS[i])
	if not value then
		if redis.call('ZSCORE', KEYS[2], ARGV[i]) then return {'lost', ARGV[i]} end
		value = ''
	end
	size = size + #value
	if i > 3 and size > tonumber(ARGV[2]) then break end
	found[#found + 1] = value
end
return found
`

// putScript writes a key, or removes it. A repetition of the same write succeeds.
//
// KEYS: and then the key. ARGV: and then the key without the tag, the version to replace,
// the new one, and the value. To remove the key, the last two are empty.
var putScript = same + `
local now = redis.call('GETRANGE', KEYS[3], 0, ` + strconv.Itoa(versionSize-1) + `)
if now ~= '' and now == ARGV[4] then return {'made'} end
if now ~= ARGV[3] then return {'conflict'} end
if now == '' and redis.call('ZSCORE', KEYS[2], ARGV[2]) then return {'lost', ARGV[2]} end
if ARGV[4] == '' then
	redis.call('DEL', KEYS[3])
	redis.call('ZREM', KEYS[2], ARGV[2])
else
	redis.call('SET', KEYS[3], ARGV[4] .. ARGV[5])
	redis.call('ZADD', KEYS[2], 0, ARGV[2])
end
return {'made'}
`

// listScript returns some keys of a range, without values.
//
// ARGV: and then the limits of the range and the number of keys.
const listScript = same + `
local found = redis.call('ZRANGEBYLEX', KEYS[2], ARGV[2], ARGV[3], 'LIMIT', 0, ARGV[4])
table.insert(found, 1, 'found')
return found
`

// The number of keys that List asks for at a time, and of bytes of their values.
const (
	pageKeys  = 100
	pageBytes = 256 << 10
)

// run evaluates a script on keys, and returns what follows the word that it found or
// made something.
func (d *database) run(ctx context.Context, script string, keys []string, args ...string) ([]string, error) {
	names := []string{d.tag + "format", d.tag + "index"}
	for _, key := range keys {
		names = append(names, d.tag+"key:"+key)
	}
	said, err := d.eval(ctx, script, names, append([]string{d.id}, args...)...)
	if err != nil {
		return nil, err
	}
	switch said[0] {
	case "found", "made":
		return said[1:], nil
	case "conflict":
		return nil, store.Conflictf("key %s has been changed", keys[0])
	case "gone":
		return nil, &store.CorruptError{Where: "key " + d.tag + "format", Reason: "the database has lost the store, or now has another one of the same prefix"}
	case "lost":
		return nil, &store.CorruptError{Where: "key " + d.tag + "key:" + said[1], Reason: "it is missing; the database may evict keys"}
	}
	return nil, fmt.Errorf("upstashstore: a script answered %q", said[0])
}

// Get implements kvstore.KV.
func (d *database) Get(ctx context.Context, key string) (store.Cell, error) {
	cells, err := d.get(ctx, []string{key})
	if err != nil {
		return store.Cell{}, err
	}
	if cells[0].Version == "" {
		return store.Cell{}, store.ErrNotFound
	}
	return cells[0], nil
}

// get returns the first ones of keys. A cell without a version means that there is no
// such key.
func (d *database) get(ctx context.Context, keys []string) ([]store.Cell, error) {
	values, err := d.run(ctx, getScript, keys, append([]string{strconv.Itoa(pageBytes)}, keys...)...)
	if err != nil {
		return nil, err
	}
	if len(values) == 0 || len(values) > len(keys) {
		return nil, fmt.Errorf("upstashstore: a script returned %d values of %d", len(values), len(keys))
	}
	cells := make([]store.Cell, len(values))
	for i, value := range values {
		if value == "" {
			continue
		}
		data, err := base64.StdEncoding.DecodeString(value[min(versionSize, len(value)):])
		if err != nil || len(value) < versionSize {
			return nil, &store.CorruptError{Where: "key " + d.tag + "key:" + keys[i], Reason: "it does not hold a version and a value in base64"}
		}
		cells[i] = store.Cell{Key: keys[i], Value: data, Version: store.Version(value[:versionSize])}
	}
	return cells, nil
}

// Put implements kvstore.KV.
func (d *database) Put(ctx context.Context, key string, value []byte, prev store.Version) (store.Version, error) {
	version := rand.Text()
	_, err := d.run(ctx, putScript, []string{key}, key, string(prev), version, base64.StdEncoding.EncodeToString(value))
	return store.Version(version), err
}

// Delete implements kvstore.KV.
func (d *database) Delete(ctx context.Context, key string, prev store.Version) error {
	_, err := d.run(ctx, putScript, []string{key}, key, string(prev), "", "")
	return err
}

// List implements kvstore.KV.
func (d *database) List(ctx context.Context, prefix, after string) iter.Seq2[store.Cell, error] {
	return func(yield func(store.Cell, error) bool) {
		from, to := "["+prefix, "("+prefix+"~" // no key has a ~
		for {
			if after >= prefix && after != "" {
				from = "(" + after
			}
			keys, err := d.run(ctx, listScript, nil, from, to, strconv.Itoa(pageKeys))
			full := len(keys) == pageKeys
			for len(keys) > 0 && err == nil {
				var cells []store.Cell
				cells, err = d.get(ctx, keys)
				for _, cell := range cells {
					if cell.Version != "" && !yield(cell, nil) { // it may have been deleted since
						return
					}
				}
				after, keys = keys[max(0, len(cells)-1)], keys[len(cells):]
			}
			if err != nil {
				yield(store.Cell{}, err)
				return
			}
			if !full {
				return
			}
		}
	}
}

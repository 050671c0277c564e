package redisstore

import "github.com/redis/go-redis/v9"

// The keys of a store. They share a hash tag, the store's prefix, so that Redis
// Cluster keeps them in one slot and one script may use any of them.
//
//	{prefix}:format   the format and the id of the store
//	{prefix}:journals names of journals, a sorted set in which all scores are 0
//	{prefix}:dropped  names of dropped journals, a set
//	{prefix}:keys     keys of cells, like journals
//	{prefix}:j:NAME   the entries of a journal, a list
//	{prefix}:c:KEY    a cell: its version, and then its value
//	{prefix}:news     the channel on which handles notify each other
type keys struct{ format, journals, dropped, cells, journal, cell, news string }

func newKeys(prefix string) keys {
	tag := "{" + prefix + "}:"
	return keys{tag + "format", tag + "journals", tag + "dropped", tag + "keys", tag + "j:", tag + "c:", tag + "news"}
}

// versionSize is the length of a version, a text of package crypto/rand.
const versionSize = 26

// What scripts return in the first place.
const (
	made       = "made"    // everything was written
	wasDropped = "dropped" // the journal was
	wasLost    = "lost"    // the journal or cell is in its index, but has no data
	notAtEnd   = "end"     // the journal ends elsewhere; its last sequence follows
	notVersion = "cell"    // a cell has another version; its index in the batch and the version follow
)

// The kinds of writes of cells.
const (
	puts            = "p"
	removes         = "r"
	putsOptional    = "P"
	removesOptional = "R"
)

// A script that begins with #!lua is refused before it writes anything if the server
// is out of memory, a replica, or cannot write to its disk. So it does all or nothing.

// writeScript appends to a journal, if the first argument is its name, and writes
// cells. It needs no call that blocks, and is one write to the AOF.
//
// KEYS: journals, dropped, keys, the journal if there is one, the cells.
// ARGV: name, after, number of entries, the entries; for each cell its kind, key,
// expected version, and new content.
var writeScript = redis.NewScript(`#!lua
local name, after, n = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3])
local before = 3
if name ~= '' then
	before = 4
	local last = redis.call('LLEN', KEYS[4])
	if last == 0 then
		if redis.call('SISMEMBER', KEYS[2], name) == 1 then return {'dropped'} end
		if redis.call('ZSCORE', KEYS[1], name) then return {'lost'} end
	end
	if last ~= after then return {'end', last} end
end

local count = #KEYS - before
local function arg(i, which) return ARGV[n + 4 * i - 1 + which] end
local function version(i) return redis.call('GETRANGE', KEYS[before + i], 0, 25) end
local function write(i)
	local kind = arg(i, 1)
	if kind == 'r' or kind == 'R' then
		redis.call('DEL', KEYS[before + i])
		redis.call('ZREM', KEYS[3], arg(i, 2))
		return
	end
	redis.call('SET', KEYS[before + i], arg(i, 4))
	if arg(i, 3) == '' then redis.call('ZADD', KEYS[3], 0, arg(i, 2)) end
end
local function optional(i) local kind = arg(i, 1) return kind == 'P' or kind == 'R' end

for i = 1, count do
	if not optional(i) then
		local now = version(i)
		if now ~= arg(i, 3) then return {'cell', i, now} end
	end
end
if name ~= '' then
	if after == 0 then redis.call('ZADD', KEYS[1], 0, name) end
	redis.call('RPUSH', KEYS[4], unpack(ARGV, 4, 3 + n))
end
for i = 1, count do
	if not optional(i) then write(i) end
end
for i = 1, count do
	if optional(i) then
		if version(i) ~= arg(i, 3) then break end
		write(i)
	end
end
return {'made'}
`)

// readScript returns entries of a journal.
//
// KEYS: journals, dropped, the journal. ARGV: name, the indexes of the first and the
// last entry, from 0.
var readScript = redis.NewScript(`#!lua flags=no-writes
local page = redis.call('LRANGE', KEYS[3], ARGV[2], ARGV[3])
if #page == 0 and redis.call('EXISTS', KEYS[3]) == 0 then
	if redis.call('SISMEMBER', KEYS[2], ARGV[1]) == 1 then return 'dropped' end
	if redis.call('ZSCORE', KEYS[1], ARGV[1]) then return 'lost' end
end
return page
`)

// dropScript drops a journal. KEYS: journals, dropped, the journal. ARGV: name.
var dropScript = redis.NewScript(`#!lua
redis.call('SADD', KEYS[2], ARGV[1])
redis.call('ZREM', KEYS[1], ARGV[1])
redis.call('UNLINK', KEYS[3])
return 'made'
`)

// lostScript tells a cell that was just removed from one whose data is missing.
// KEYS: keys, the cell. ARGV: key.
var lostScript = redis.NewScript(`#!lua flags=no-writes
if redis.call('EXISTS', KEYS[2]) == 0 and redis.call('ZSCORE', KEYS[1], ARGV[1]) then return 'lost' end
return 'made'
`)

// rightsScript returns a command of the other scripts that the user may not run, or "". A
// server checks the commands of a script one by one, so that a script without all rights
// would write some keys and not others. KEYS: any key of the store.
var rightsScript = redis.NewScript(`#!lua flags=no-writes
for _, c in ipairs({
	{'get'}, {'exists'}, {'set', 'x'}, {'del'}, {'unlink'}, {'getrange', '0', '0'}, {'llen'}, {'lrange', '0', '0'}, {'rpush', 'x'},
	{'zadd', '0', 'x'}, {'zrem', 'x'}, {'zscore', 'x'}, {'sadd', 'x'}, {'sismember', 'x'},
}) do
	if not redis.acl_check_cmd(c[1], KEYS[1], unpack(c, 2)) then return c[1] end
end
return ''
`)

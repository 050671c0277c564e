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
	made       = "made"    // everything was written, or read
	wasDropped = "dropped" // the journal was
	wasLost    = "lost"    // the journal or cell is in its index, but has no data
	isNone     = "none"    // there is no such cell
	isGone     = "gone"    // the server has lost the store, or has another one of its prefix
	isDenied   = "denied"  // the user may not run a command, which follows; nothing was written
	notAtEnd   = "end"     // the journal ends elsewhere; its last sequence follows
	notVersion = "cell"    // a cell has another version; its index in the batch and the version follow
)

// lostVersion is the version of a cell that is in its index, but has no data. No other
// is as short, so that a cell can be written again, or removed, with it.
const lostVersion = "lost"

// A reply is what a script returns.
type reply []any

func (r reply) at(i int) any {
	if i < len(r) {
		return r[i]
	}
	return nil
}

func (r reply) text(i int) string { s, _ := r.at(i).(string); return s }

func (r reply) number(i int) int64 { n, _ := r.at(i).(int64); return n }

func (r reply) is(outcome string) bool { return r.text(0) == outcome }

// page returns a list of texts in a reply.
func (r reply) page(i int) []string {
	list, _ := r.at(i).([]any)
	page := make([]string, len(list))
	for j, item := range list {
		page[j], _ = item.(string)
	}
	return page
}

// refusedBy returns the error of a script that the store or the user's rights kept from
// doing anything.
func (s *Store) refusedBy(r reply) error {
	switch r.text(0) {
	case isGone:
		return s.gone()
	case isDenied:
		return mayNot(r.text(1))
	}
	return nil
}

// The kinds of writes of cells.
const (
	puts            = "p"
	removes         = "r"
	putsOptional    = "P"
	removesOptional = "R"
)

// A script that begins with #!lua is refused before it writes anything if the server
// is out of memory, a replica, or cannot write to its disk. A user who may not run one
// of its commands would be refused amid the script, so it first plans all commands and
// asks for each whether it is allowed. So it does all or nothing.
const (
	lua = "#!lua\n"

	// A script that removes runs also if the server's memory is full.
	luaRemoves = "#!lua flags=allow-oom\n"

	luaReads = "#!lua flags=no-writes\n"

	// planning begins scripts that write.
	planning = `
local plan = {}
local function add(...) plan[#plan + 1] = {...} end
local function execute()
	for _, c in ipairs(plan) do
		if not redis.acl_check_cmd(c[1], c[2]) then return {'denied', c[1]} end
	end
	for _, c in ipairs(plan) do redis.call(unpack(c)) end
	return {'made'}
end
`

	// sameStore begins all scripts. KEYS[1] is the format, and ARGV[1] what it was
	// when the store was opened.
	sameStore = `
if redis.call('GET', KEYS[1]) ~= ARGV[1] then return {'gone'} end
`
)

// writing appends to a journal, if its argument is a name, and writes cells. It needs
// no call that blocks, and is one write to the AOF.
//
// KEYS: format, journals, dropped, keys, the journal if there is one, the cells.
// ARGV: format, name, after, number of entries, the entries; for each cell its kind,
// key, expected version, and new content.
const writing = sameStore + planning + `
local name, after, n = ARGV[2], tonumber(ARGV[3]), tonumber(ARGV[4])
local before = 4
if name ~= '' then
	before = 5
	local last = redis.call('LLEN', KEYS[5])
	if last == 0 then
		if redis.call('SISMEMBER', KEYS[3], name) == 1 then return {'dropped'} end
		if redis.call('ZSCORE', KEYS[2], name) then return {'lost'} end
	end
	if last ~= after then return {'end', last} end
	if after == 0 then add('ZADD', KEYS[2], 0, name) end
	add('RPUSH', KEYS[5], unpack(ARGV, 5, 4 + n))
end

local count = #KEYS - before
local function arg(i, which) return ARGV[n + 4 * i + which] end
local function version(i)
	local now = redis.call('GETRANGE', KEYS[before + i], 0, 25)
	if now == '' and redis.call('ZSCORE', KEYS[4], arg(i, 2)) then return 'lost' end
	return now
end
local function write(i)
	local kind = arg(i, 1)
	if kind == 'r' or kind == 'R' then
		add('DEL', KEYS[before + i])
		add('ZREM', KEYS[4], arg(i, 2))
		return
	end
	add('SET', KEYS[before + i], arg(i, 4))
	if arg(i, 3) == '' then add('ZADD', KEYS[4], 0, arg(i, 2)) end
end
local function optional(i) local kind = arg(i, 1) return kind == 'P' or kind == 'R' end

for i = 1, count do
	if not optional(i) then
		local now = version(i)
		if now ~= arg(i, 3) then return {'cell', i, now} end
		write(i)
	end
end
for i = 1, count do
	if optional(i) then
		if version(i) ~= arg(i, 3) then break end
		write(i)
	end
end
return execute()
`

var (
	writeScript  = redis.NewScript(lua + writing)
	removeScript = redis.NewScript(luaRemoves + writing) // for requests that only remove cells
)

// dropScript drops a journal. KEYS: format, journals, dropped, the journal. ARGV:
// format, name.
var dropScript = redis.NewScript(luaRemoves + sameStore + planning + `
add('SADD', KEYS[3], ARGV[2])
add('ZREM', KEYS[2], ARGV[2])
add('UNLINK', KEYS[4])
return execute()
`)

// readScript returns entries of a journal.
//
// KEYS: format, journals, dropped, the journal. ARGV: format, name, the indexes of the
// first and the last entry, from 0.
var readScript = redis.NewScript(luaReads + sameStore + `
local page = redis.call('LRANGE', KEYS[4], ARGV[3], ARGV[4])
if #page == 0 and redis.call('EXISTS', KEYS[4]) == 0 then
	if redis.call('SISMEMBER', KEYS[3], ARGV[2]) == 1 then return {'dropped'} end
	if redis.call('ZSCORE', KEYS[2], ARGV[2]) then return {'lost'} end
end
return {'made', page}
`)

// getScript returns the content of a cell. KEYS: format, keys, the cell. ARGV: format,
// key.
var getScript = redis.NewScript(luaReads + sameStore + `
local content = redis.call('GET', KEYS[3])
if content then return {'made', content} end
if redis.call('ZSCORE', KEYS[2], ARGV[2]) then return {'lost'} end
return {'none'}
`)

// indexScript returns members of a sorted set in bytewise order. KEYS: format, the set.
// ARGV: format, the bounds, the most members.
var indexScript = redis.NewScript(luaReads + sameStore + `
return {'made', redis.call('ZRANGE', KEYS[2], ARGV[2], ARGV[3], 'BYLEX', 'LIMIT', 0, ARGV[4])}
`)

// rightsScript returns the commands that the user needs and may not run. KEYS: format,
// journals, dropped, keys, a journal, a cell.
var rightsScript = redis.NewScript(luaReads + `
local denied = {}
for i, commands in ipairs({
	{'GET', 'SETNX', 'EXISTS', 'MGET'},
	{'ZADD', 'ZREM', 'ZSCORE', 'ZRANGE'},
	{'SADD', 'SISMEMBER'},
	{'ZADD', 'ZREM', 'ZSCORE', 'ZRANGE'},
	{'LLEN', 'LRANGE', 'RPUSH', 'EXISTS', 'UNLINK'},
	{'GET', 'MGET', 'GETRANGE', 'SET', 'DEL'},
}) do
	for _, command in ipairs(commands) do
		if not redis.acl_check_cmd(command, KEYS[i]) then denied[#denied + 1] = command end
	end
end
for _, command in ipairs({'EVAL', 'EVALSHA'}) do
	if not redis.acl_check_cmd(command, '', 1, KEYS[1]) then denied[#denied + 1] = command end
end
return denied
`)

// Package shelf keeps what outlives threads: small versioned values under a
// namespace and a key, in the cells of a runtime's store. Memory, rules and
// credentials are on shelves of different kinds, and tenants on shelves of their
// own; none reaches another. It may import store,
// internal/threads and internal/engine.
//
// # Names
//
// A namespace is a list of segments, a key one text; both may hold anything
// that is UTF-8. No such text is in the name of a cell, which is
//
//	shelf/<kind>/<tenant>/<segment>.<segment>.~<key>
//
// where each part is a keyed hash of the text and everything before it. So the
// values below a namespace are adjacent and can be listed, ".." and "/" mean
// nothing, and the same text in two places has two names. What follows the tenant
// is a value's place. The record in the cell has the real texts, and one that does
// not fit its place is refused.
//
// # Time
//
// A value may have a time to live. Once that is over, nobody sees the value, and
// whoever comes across its cell removes it. The clock is that of the machine that
// looks.
package shelf

// Package shelf keeps what outlives threads: small versioned values under a
// namespace and a key, in the cells of a runtime's store. Memory, rules and
// credentials are kept on shelves of their own kind, which cannot reach each
// other, and so are those of different tenants.
//
// # Names
//
// A namespace is a list of segments, a key one text; both may hold anything
// that is UTF-8. No such text is in the name of a cell, which is
//
//	shelf/<kind>/<tenant>/<segment>.<segment>.~<key>
//
// where each part is a keyed hash of the text and all that stands before it.
// So the values below a namespace stand together and can be listed, ".." and
// "/" mean nothing, and the same text in two places has two names. What is
// behind the tenant is a value's place. The record in the cell has the real
// texts, and one that does not fit its place is refused.
//
// # Time
//
// A value may have a time to live. Once it is over the value is not there for
// anyone; who comes across its cell removes it. Times are those of the
// machine that looks.
package shelf

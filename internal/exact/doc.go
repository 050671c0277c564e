// Package exact encodes and decodes the JSON of recorded values, and refuses what
// JSON would change on the way. It imports internal/fault and internal/strict.
package exact

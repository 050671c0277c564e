// Package cluster holds the tests of many nodes on one PostgreSQL server: API nodes
// and workers as real processes, which are killed and frozen while the server
// restarts and connections fail. What they leave is checked with plain SQL and JSON,
// without the code of Perdure. It has no code but tests.
package cluster

// Package proof holds the tests that look for what nobody thought of:
// explorations of all interleavings, with the table of guards that they need;
// real processes that are killed and frozen; random flows; full disks. It has
// no code but tests.
package proof

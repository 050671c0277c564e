//go:build race

package agent_test

// fewer is by how much sweeps are smaller with the race detector, which makes
// each of their thousands of runs several times slower.
const fewer = 4

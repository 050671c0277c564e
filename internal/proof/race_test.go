//go:build race

package proof_test

// raceBuild: an execution of an exploration has one goroutine at work at a
// time, so the race detector finds nothing in it and costs five times as much.
const raceBuild = true

// crewPace is how much slower processes are with the race detector.
const crewPace = 2

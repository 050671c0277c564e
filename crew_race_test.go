//go:build race

package perdure_test

// crewPace is how much slower processes are with the race detector.
const crewPace = 2

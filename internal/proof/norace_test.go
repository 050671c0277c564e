//go:build !race

package proof_test

const (
	raceBuild = false
	crewPace  = 1
)

//go:build !race

package perdure_test

const crewPace = 1

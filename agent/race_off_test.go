//go:build !race

package agent_test

const fewer = 1

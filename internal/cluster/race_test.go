//go:build race

package cluster_test

import "time"

// lease is how long the runs of a killed worker rest: longer with the race detector,
// with which processes are slower.
const lease = 2 * time.Second

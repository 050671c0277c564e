//go:build !race

package cluster_test

import "time"

const lease = time.Second

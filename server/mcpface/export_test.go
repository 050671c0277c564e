package mcpface

import (
	"testing"
	"time"
)

// SetSilence sets how long a server may say nothing during a test.
func SetSilence(t *testing.T, d time.Duration) {
	before := silence
	silence = d
	t.Cleanup(func() { silence = before })
}

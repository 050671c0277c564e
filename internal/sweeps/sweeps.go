// Package sweeps lets the tests of this module crash flows on more stores than the
// one in memory. It imports nothing but package store.
package sweeps

import (
	"os"
	"testing"

	"github.com/perdure/perdure/store"
)

// Stores has functions that create stores in bubbles of testing/synctest, by their
// name. Except with -short, all sweeps of package perduretest that do not name a
// store run on each of these too. Tests register them when they are initialized.
var Stores = map[string]func(t *testing.T) (create func() store.Store){}

// InMemory reports whether sweeps run in memory only, because the environment has
// PERDURE_SWEEPS=memory. make long uses it for those that take long on servers.
func InMemory() bool { return os.Getenv("PERDURE_SWEEPS") == "memory" }

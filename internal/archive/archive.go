// Package archive exports threads to files, reads and verifies such files, and
// imports them. It may import internal/threads and what that imports.
package archive

import (
	"github.com/perdure/perdure/internal/threads"
)

// Archive exports, verifies and imports the threads of a tenant.
type Archive struct {
	threads *threads.Threads
	tenant  *threads.Tenant
	trust   []string // public keys by which imports may be signed
}

// New returns the archive of a tenant's threads.
func New(t *threads.Tenant, trust []string) *Archive {
	return &Archive{threads: t.All, tenant: t, trust: trust}
}

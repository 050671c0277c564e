package perdure

import (
	"context"
)

// ExportKey returns the public key by which exports of this store are signed,
// for [ImportOptions] and [Options] of others that trust it.
func (r *Runtime) ExportKey(ctx context.Context) (string, error) {
	return r.archive().ExportKey(ctx)
}

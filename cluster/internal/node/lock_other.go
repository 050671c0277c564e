//go:build !unix

package node

import (
	"fmt"
	"os"
	"path/filepath"
)

// lockFolder opens the file that nodes lock elsewhere. Two nodes in one folder fail when
// they listen at the same address.
func lockFolder(dir string) (*os.File, error) {
	f, err := os.OpenFile(filepath.Join(dir, "lock"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrConfig, err)
	}
	return f, nil
}

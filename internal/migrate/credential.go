package migrate

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/threads"
	"github.com/perdure/perdure/store"
	"github.com/perdure/perdure/store/seal"
)

// credentialPrefix is what the keys of credentials begin with, see package shelf.
const credentialPrefix = "shelf/credential/"

// onlySealed reports whether a cell of the source must not get into the target: a
// credential that is in clear because the source is sealed, if the target is not.
func (m *migration) onlySealed(c store.Cell) bool {
	if !strings.HasPrefix(c.Key, credentialPrefix) {
		return false
	}
	if _, sealed := store.As[*seal.Store](m.to); sealed {
		return false
	}
	var found struct {
		Value struct {
			Clear []byte `json:"clear"`
		} `json:"value"`
	}
	return json.Unmarshal(c.Value, &found) != nil || len(found.Value.Clear) > 0
}

// checkCredentials refuses a target to which credentials cannot move. One that is
// given later is left out.
func (m *migration) checkCredentials(ctx context.Context) error {
	if moved, err := threads.ReadCopy(ctx, m.from, threads.MovedCell); err != nil || moved != nil {
		return err
	}
	for cell, err := range m.from.List(ctx, credentialPrefix, "") {
		if err != nil {
			return err
		}
		if !m.onlySealed(cell) {
			continue
		}
		if _, sealed := store.As[*seal.Store](m.from); !sealed {
			return fmt.Errorf("%w: the source is not sealed, and yet holds a credential in clear or one that cannot be read (cell %s), which would be so in the target; remove it, and give it again in the target", fault.ErrInvalid, cell.Key)
		}
		return fmt.Errorf("%w: the source is sealed and holds credentials, which would be in clear in the target; seal that too, or remove the credentials", fault.ErrInvalid)
	}
	return nil
}

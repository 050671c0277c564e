package sqlitestore_test

import (
	"testing"

	"github.com/perdure/perdure/internal/powercut"
	"github.com/perdure/perdure/store/storetest"
)

func TestRealPowerCuts(t *testing.T) {
	storetest.PowerCut(t, open, powercut.New, powercut.Options())
}

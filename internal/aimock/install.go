package aimock

import (
	_ "embed"
	"sync"

	"github.com/perdure/perdure/internal/npm"
)

//go:embed package.json
var manifest []byte

//go:embed package-lock.json
var lock []byte

// install returns the file that node runs.
var install = sync.OnceValues(func() (string, error) {
	return npm.Install("aimock", manifest, lock, "@copilotkit", "aimock", "dist", "cli.js")
})

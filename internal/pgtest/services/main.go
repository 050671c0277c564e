// Command services starts the servers that tests use, for a developer, and stops
// them when it is interrupted. It imports internal/pgtest.
package main

import (
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/perdure/perdure/internal/pgtest"
)

func main() {
	direct, pooled, stop, err := pgtest.Services()
	if err != nil {
		fmt.Fprintln(os.Stderr, "services:", err)
		os.Exit(1)
	}
	defer stop()
	fmt.Printf(`PostgreSQL: %s
PgBouncer:  %s

Try it:     go run ./cmd/perdure dev --store '%[1]s'
In tests:   export PERDURE_TEST_POSTGRES='%[1]s'

They run until this is interrupted, and their data goes with them.
`, direct, pooled)
	over := make(chan os.Signal, 1)
	signal.Notify(over, os.Interrupt, syscall.SIGTERM)
	<-over
}

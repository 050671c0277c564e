package kit

import (
	"errors"
	"flag"
	"os"
	"testing"
	"testing/synctest"

	"github.com/perdure/perdure"
)

// Sized returns how much of something a test does: the first size for go test
// -short, the last one for make torture, and else the one between.
func Sized(short, usual, torture int) int {
	switch {
	case os.Getenv("PERDURE_TORTURE") != "":
		return torture
	case testing.Short():
		return short
	}
	return usual
}

// Bubble runs a test in virtual time.
func Bubble(t *testing.T, name string, fn func(t *testing.T)) {
	t.Helper()
	t.Run(name, func(t *testing.T) { synctest.Test(t, fn) })
}

// NoErr ends the test if there is an error.
func NoErr(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// must returns a value, or ends the test if there is an error.
func must[T any](v T, err error) func(*testing.T) T {
	return func(t *testing.T) T {
		t.Helper()
		NoErr(t, err)
		return v
	}
}

// NoDiff expects that a comparison found no difference.
func NoDiff(t *testing.T, diff string) {
	t.Helper()
	if diff != "" {
		t.Error(diff)
	}
}

// WantErr expects an error of a kind.
func WantErr(t *testing.T, what string, got, want error) {
	t.Helper()
	if want == nil && got != nil || want != nil && !errors.Is(got, want) {
		t.Errorf("%s: got error %v, want %v", what, got, want)
	}
}

// WantOutput expects what a run returned.
func WantOutput[T comparable](t *testing.T, run *perdure.Run, want T) {
	t.Helper()
	got, err := perdure.Output[T](run)
	if err != nil || got != want {
		t.Errorf("output is %v, %v; want %v", got, err, want)
	}
}

// SetFlag sets a flag of the test binary until the test ends.
func SetFlag(t *testing.T, name, value string) {
	t.Helper()
	was := flag.Lookup(name).Value.String()
	NoErr(t, flag.Set(name, value))
	t.Cleanup(func() { _ = flag.Set(name, was) })
}

// Package deep marks tests that take long. They run only where the test binary was given -deep, as .ci/run does:
//
//	go test ./tests ./tasks/product -deep
//
// A package whose tests do not import this one, or one that does, has no such flag, and go test ./... -deep fails
// there.
//
// Test binaries that import it collect garbage a quarter as often, unless GOGC says otherwise: they build and drop one
// small kernel after another, and collecting took a third of the time of some.
package deep

import (
	"flag"
	"os"
	"runtime/debug"
	"testing"
)

var on = flag.Bool("deep", false, "run the tests that take long, too")

func init() {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(400)
		debug.SetMemoryLimit(3 << 30) // from there on as often as it must: two packages run at a time
	}
}

// On reports whether -deep was given.
func On() bool { return *on }

// Only skips a test, or a benchmark, unless -deep was given.
func Only(t testing.TB) {
	t.Helper()
	if !*on {
		t.Skip("takes long: with -deep")
	}
}

// Count returns all with -deep, else quick: how many times a test repeats what one time nearly shows.
func Count(all, quick int) int {
	if *on {
		return all
	}
	return min(all, quick)
}

// Most returns all cases with -deep, else the first quick of them. Those that come first stand for the others.
func Most[T any](all []T, quick int) []T { return all[:Count(len(all), quick)] }

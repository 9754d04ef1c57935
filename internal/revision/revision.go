// Package revision tells which commit a program was built from, for records.
package revision

import (
	"runtime/debug"
)

// stamped is what the linker was told with -X: by scripts/build-cuda for checkouts where go build finds no commit (work
// trees of git among them), and by go test -c for a test that runs where there is no checkout.
var stamped string

// String is the commit the running program was built from, followed by
// "+modified" when the tree had changes, or "unknown" when the build did not
// record it (go run and go test do not).
func String() string {
	if stamped != "" {
		return stamped
	}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "unknown"
	}
	revision, modified := "unknown", ""
	for _, s := range info.Settings {
		switch {
		case s.Key == "vcs.revision":
			revision = s.Value
		case s.Key == "vcs.modified" && s.Value == "true":
			modified = "+modified"
		}
	}
	return revision + modified
}

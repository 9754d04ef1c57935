// Package revision tells which commit a program was built from, for records.
package revision

import "runtime/debug"

// String is the commit the running program was built from, followed by
// "+modified" when the tree had changes, or "unknown" when the build did not
// record it (go run and go test do not).
func String() string {
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

// Package revision tells which commit a program was built from, for records.
package revision

import (
	"os/exec"
	"runtime/debug"
	"strings"
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

// Checkout is the commit that a test was stamped with, else that of the checkout that the working directory is in, as
// String writes it: for records of tests, whose build records none. It is "unknown" where git does not say.
func Checkout() string {
	if stamped != "" {
		return stamped
	}
	head, err := exec.Command("git", "rev-parse", "HEAD").Output()
	if err != nil {
		return "unknown"
	}
	changes, err := exec.Command("git", "status", "--porcelain", "--untracked-files=no").Output()
	if err != nil {
		return "unknown"
	}
	revision := strings.TrimSpace(string(head))
	if len(changes) > 0 {
		revision += "+modified"
	}
	return revision
}

package cuda

import (
	"os"
	"regexp"
)

var releaseForm = regexp.MustCompile(`\b[0-9]{3,}\.[0-9]+(\.[0-9]+)?\b`)

// DriverRelease is the installed driver's own number, such as "580.159.04", as its kernel module says it; "" where it
// does not say (no driver, or a sandbox that hides it). It opens no GPU.
func DriverRelease() string {
	return releaseIn("/proc/driver/nvidia/version", "/sys/module/nvidia/version")
}

// releaseIn is the first release number in the files.
func releaseIn(paths ...string) string {
	for _, path := range paths {
		text, err := os.ReadFile(path)
		if err != nil {
			continue
		}
		if found := releaseForm.Find(text); found != nil {
			return string(found)
		}
	}
	return ""
}

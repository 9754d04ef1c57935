//go:build !cuda

package compile

import "fmt"

// openNVRTC finds none: NVRTC is called through cgo.
func openNVRTC() (compiler, error) {
	return nil, fmt.Errorf("%w in this build: it needs the build tag cuda (scripts/build-cuda)", errNoNVRTC)
}

package compile

import (
	"os"
	"path/filepath"

	"github.com/mkgen/mkgen/emit"
)

// nvrtcArguments are NVRTC's for what emit.Target.NvccFlags say to nvcc. NVRTC has no -O3: it is how ptxas works when
// not told otherwise.
func nvrtcArguments(target emit.Target, extra []string) []string {
	return append([]string{"--gpu-architecture=" + target.Arch, "--std=" + target.Std, "--ptxas-options=-v"}, extra...)
}

// libraries are the names under which NVRTC is looked for, in order: the dynamic linker's own search, then folders.
func libraries() []string {
	names := []string{"libnvrtc.so.13", "libnvrtc.so.12"}
	paths := append([]string(nil), names...)
	folders := []string{"/usr/local/cuda/lib64"}
	if home := os.Getenv("CUDA_HOME"); home != "" {
		folders = append([]string{filepath.Join(home, "lib64")}, folders...)
	}
	for _, folder := range folders {
		for _, name := range names {
			paths = append(paths, filepath.Join(folder, name))
		}
	}
	return paths
}

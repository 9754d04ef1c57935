package megakernel

import (
	"bytes"
	"fmt"

	"github.com/mkgen/mkgen/emit"
)

// Files generates everything for one architecture ("sm_90a"): the kernel, and
// the layout. The same kernel gives the same bytes. It refuses an architecture
// that there is no emitter for, and a kernel that exceeds it.
func (mk *Kernel) Files(arch string) ([]File, error) {
	target, err := emit.TargetFor(arch)
	if err != nil {
		return nil, err
	}
	var cu bytes.Buffer
	if err := emit.CUDA(&cu, mk.IR, target); err != nil {
		return nil, fmt.Errorf("kernel: %w", err)
	}
	files := []File{{"kernel.cu", cu.Bytes()}}
	layout, err := mk.layout(target, files)
	if err != nil {
		return nil, err
	}
	return append(files, layout), nil
}

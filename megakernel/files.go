package megakernel

import (
	"bytes"
	"cmp"
	"fmt"
	"slices"

	"github.com/mkgen/mkgen/emit"
)

// Files generates everything for one architecture ("sm_90a"), in order of name:
// the kernel, its Go host package, and the layout. The same kernel gives the
// same bytes. It refuses an architecture that there is no emitter for, and a
// kernel that exceeds it.
func (mk *Kernel) Files(arch string) ([]File, error) {
	target, err := emit.TargetFor(arch)
	if err != nil {
		return nil, err
	}
	var cu bytes.Buffer
	if err := emit.CUDA(&cu, mk.IR, target); err != nil {
		return nil, fmt.Errorf("kernel: %w", err)
	}
	files := []File{{emit.KernelFile, cu.Bytes()}}
	l, name := emit.NewLayout(mk.IR, target, mk.extras()), packageName(mk.Config.Name)
	host, err := emit.Host(l, name)
	if err != nil {
		return nil, err
	}
	for _, f := range host {
		files = append(files, File{f.Name, f.Content})
	}
	layout, err := mk.layoutFile(l, name, files)
	if err != nil {
		return nil, err
	}
	files = append(files, layout)
	slices.SortFunc(files, func(a, b File) int { return cmp.Compare(a.Name, b.Name) })
	return files, nil
}

package megakernel

import (
	"cmp"
	"errors"
	"slices"

	"github.com/mkgen/mkgen/emit"
)

// EmitOptions are what a model's kernel is printed with. Its params block is the
// argument itself: read from constant memory, it costs no registers and no
// loads inside the layer loop.
func EmitOptions() emit.Options { return emit.Options{ParamsByValue: true} }

// Files generates everything for one architecture ("sm_90a"), in order of name:
// the kernel, its C header, its Go host package, and the layout. The same kernel gives the
// same bytes. It refuses an architecture that there is no emitter for, and a
// kernel that exceeds it.
func (mk *Kernel) Files(arch string) ([]File, error) {
	if mk.Graph != nil {
		return nil, errors.New("files of a graph of kernels: there are none, want a step that is one kernel")
	}
	target, err := emit.TargetFor(arch)
	if err != nil {
		return nil, err
	}
	name := packageName(mk.Config.Name)
	files, l, err := emit.Package(mk.IR, target, EmitOptions(), name, mk.extras())
	if err != nil {
		return nil, err
	}
	layout, err := mk.layoutFile(l, name, files)
	if err != nil {
		return nil, err
	}
	files = append(files, layout)
	slices.SortFunc(files, func(a, b File) int { return cmp.Compare(a.Name, b.Name) })
	return files, nil
}

package tune

import (
	"github.com/mkgen/mkgen/internal/jsonfile"
	"github.com/mkgen/mkgen/megakernel"
)

// Parse is ReadFile of a file with that text.
func Parse(data []byte) (*Profile, error) { return jsonfile.ParseChecked[Profile](data, kind) }

// Dimension is one option and the kernels that differ from an incumbent in it: of
// another stage size, in what follows from that, too.
type Dimension struct {
	Name    string
	Kernels []*megakernel.Kernel
}

// Space is every dimension's candidates around a kernel.
func Space(mk *megakernel.Kernel) []Dimension {
	var all []Dimension
	names := Dimensions(mk.Options.Tokens, mk.Options.Launch)
	for _, name := range names {
		all = append(all, Dimension{name, candidates(mk, name, names)})
	}
	return all
}

package attention

import (
	"slices"

	"github.com/mkgen/mkgen/dsl"
)

// Turns says which class of attention each layer is of: layer l is of class
// Turns[l mod len(Turns)]. Classes are numbered from 0 on without gaps.
type Turns []int

// Each calls body once for every class, where the layer is of that class; with one
// class without asking. name is what a class's layers are called in the emitted code.
func (t Turns) Each(k *dsl.Kernel, layer u32, name func(class int) string, body func(class int)) {
	classes := slices.Max(t) + 1
	if classes == 1 {
		body(0)
		return
	}
	for class := range classes {
		k.If(t.Is(k, layer, class), func() { k.Region(name(class), func() { body(class) }) })
	}
}

// Is is whether a layer is of a class.
func (t Turns) Is(k *dsl.Kernel, layer u32, class int) dsl.Pred {
	at, is := layer.RemC(len(t)), k.Bool(false)
	for i, c := range t {
		if c == class {
			is = is.Or(at.EqC(i))
		}
	}
	return is
}

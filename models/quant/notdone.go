package quant

import (
	"fmt"
	"slices"
)

// notDone lists what a configuration asks for beside quantised weights, which reading the weights leaves out.
type notDone struct{ list []string }

// left returns the list.
func (n *notDone) left() []string { return n.list }

func (n *notDone) add(what string) {
	if !slices.Contains(n.list, what) {
		n.list = append(n.list, what)
	}
}

// inputs reads how the inputs of products are to be quantised, in compressed-tensors' words.
func (n *notDone) inputs(f *fields) {
	if len(f.names) > 0 {
		kind := "integers"
		if f.text("type", "int") == "float" {
			kind = "floats"
		}
		n.add(fmt.Sprintf("inputs of products in %d-bit %s", f.integer("num_bits", 8), kind))
	}
}

// cacheLeft is what a configuration asks for that has a scheme for the KV cache.
const cacheLeft = "a quantised KV cache"

// cache reads whether the KV cache is to be quantised: a field holds a scheme, or as ModelOpt writes it a name.
func (n *notDone) cache(f *fields, field string) {
	if raw := f.raw(field); len(raw) > 0 && raw[0] == '"' {
		if f.text(field, "") != "" {
			n.add(cacheLeft)
		}
	} else if len(f.object(field).names) > 0 {
		n.add(cacheLeft)
	}
}

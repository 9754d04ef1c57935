package checkpoint

import (
	"fmt"
	"strings"

	"github.com/mkgen/mkgen/models"
)

// wantDType names the element types that Row converts.
const wantDType = "BF16, F16 or F32"

// wanted is one tensor that a configuration needs: rows and columns of a matrix, or
// the length of a norm's gain.
type wanted struct {
	name  string
	shape []int
}

// ShapesOf are the tensors that a model needs, by name: rows and columns of a matrix, or the length
// of a norm's gain.
func ShapesOf(c models.Config) map[string][]int {
	shapes := map[string][]int{}
	for _, w := range tensorsOf(c) {
		shapes[w.name] = w.shape
	}
	return shapes
}

// tensorsOf lists what a checkpoint of c holds. The LM head is last and only there where it is not tied.
func tensorsOf(c models.Config) []wanted {
	var list []wanted
	for _, t := range c.Stored() {
		list = append(list, wanted{t.Name, t.Shape})
	}
	return list
}

// ignoredOf is the list of tensors that a checkpoint may hold and that nothing
// reads: the inverse rotary frequencies, which old versions of transformers saved
// and which follow from the configuration.
func ignoredOf(c models.Config) map[string]bool {
	names := map[string]bool{"model.rotary_emb.inv_freq": true}
	for layer := range c.Layers {
		names[fmt.Sprintf("model.layers.%d.self_attn.rotary_emb.inv_freq", layer)] = true
	}
	return names
}

// dtypeOf returns the type that Row converts from, false for others.
func dtypeOf(name string) (models.DType, bool) {
	switch name {
	case "BF16":
		return models.BF16, true
	case "F16":
		return models.F16, true
	case "F32":
		return models.F32, true
	}
	return models.DTypeUnstated, false
}

// missing describes the absence of w, with advice where it is a common mistake.
func (w wanted) missing(found map[string]*tensor, headName string) Problem {
	p := Problem{Tensor: w.name, Found: "nothing", Want: "it, of shape " + showShape(w.shape)}
	if found[strings.TrimPrefix(w.name, "model.")] != nil && strings.HasPrefix(w.name, "model.") {
		p.Why = "without model. it is there: save the model with its LM head, such as LlamaForCausalLM, instead of the bare one"
	}
	if w.name == headName {
		p.Why = "only tie_word_embeddings true in " + ConfigFile + " makes the embedding serve as LM head"
	}
	return p
}

// extra describes a tensor that nothing asks for.
func extra(t *tensor) Problem {
	p := Problem{File: t.file.name, Tensor: t.name, Want: "no such tensor",
		Found: fmt.Sprintf("%s of shape %s", t.dtype, showShape(t.shape))}
	if strings.HasSuffix(t.name, ".bias") {
		p.Why = ConfigFile + " says nothing of this bias"
	}
	return p
}

package megakernel

import (
	"fmt"
	"slices"
	"strings"

	"github.com/mkgen/mkgen/models"
)

// Supports lists the features of a model that no template computes yet, each once and in the order of a step; none for
// a model that a kernel can be made of. It is the one place that refuses them.
func Supports(a *models.Arch) (missing []string) {
	lacks := func(has bool, feature string) {
		if has && !slices.Contains(missing, feature) {
			missing = append(missing, feature)
		}
	}
	first := a.Layer(0)
	for i := range a.Kinds {
		l := a.Kinds[i]
		lacks(l.PostAttn.Kind != l.PostMLP.Kind || l.PreAttn.Kind != l.PreMLP.Kind,
			"layers with a norm at one branch and not at the other")
		lacks(l.PreAttn.Kind == models.NoNorm && l.PostAttn.Kind == models.NoNorm, "layers without norms")
		lacks(l.MLP.Act != models.SiLU && l.MLP.Act != models.GELUTanh, fmt.Sprintf("the activation %s", l.MLP.Act))
		if r := l.Attn.Rope; r.Dims > 0 {
			lacks(rotary(a) != rotary(&models.Arch{Kinds: []models.Layer{l}, Pattern: []int{0}}),
				"rotary embeddings that pair other elements in some layers")
		}
		lacks(l.Attn.Grows.Every > 0 && l.Attn.QKNorm.Kind != models.NoNorm,
			"scores that grow with the position behind norms of q and k")
		// What may differ from layer to layer, set aside.
		l.Attn.Rope, l.Attn.Window, l.Attn.SoftCap = first.Attn.Rope, first.Attn.Window, first.Attn.SoftCap
		lacks(l.String() != first.String(), "layers that differ in more than windows, soft caps and rotary embeddings")
	}
	return missing
}

// beyondLlama lists what a model has that Llama does not and that ways of running need to know of; none for Llama.
func beyondLlama(a *models.Arch) (list []string) {
	has := func(it bool, what string) {
		if it {
			list = append(list, what)
		}
	}
	l := a.Layer(0)
	has(l.PostAttn.Kind != models.NoNorm, "norms behind attention and the MLP")
	has(l.Attn.QKNorm.Kind != models.NoNorm, "norms of q and k")
	has(l.Attn.QKVBias || l.Attn.OBias || l.MLP.Bias, "biases")
	has(l.MLP.Act != models.SiLU, "the activation "+l.MLP.Act.String())
	has(l.Residual != 1, "scaled residuals")
	return list
}

// completeArch refuses options that a model's features exclude, and chooses what they ask for.
func (o *Options) completeArch(c *models.Config) error {
	a := c.Arch()
	beyond := strings.Join(beyondLlama(&a), ", ")
	switch {
	case beyond == "":
		return nil
	case o.graph():
		return refuse("Launch", "a graph of kernels of a model with %s; want a single kernel", beyond)
	}
	if err := o.mlp().checkArch(o, beyond); err != nil {
		return err
	}
	if o.Tokens > 1 || a.Layer(0).Attn.QKNorm.Kind == models.NoNorm {
		return nil
	}
	if o.Queries == "" {
		o.Queries = SyncWords // who needs a head normalises it: it is to come with its squares
	}
	if o.Queries != SyncWords {
		return refuse("Queries", "%q of a model with norms of q and k, want %s", string(o.Queries), SyncWords)
	}
	return nil
}

// checkArch refuses a model with features that Supports lists.
func checkArch(c *models.Config) error {
	a := c.Arch()
	if missing := Supports(&a); len(missing) > 0 {
		return fmt.Errorf("the kernel does not have %s yet", strings.Join(missing, ", "))
	}
	return nil
}

// check refuses what the templates cannot do with a model that is otherwise
// sound, by the configuration's field.
func check(c *models.Config) error {
	switch {
	case c.Hidden%8 != 0:
		return fmt.Errorf("hidden_size %d is not a multiple of 8", c.Hidden)
	case c.Intermediate%8 != 0:
		return fmt.Errorf("intermediate_size %d is not a multiple of 8", c.Intermediate)
	case c.HeadDim%16 != 0 || c.HeadDim > 256:
		return fmt.Errorf("head_dim %d, want a multiple of 16 up to 256", c.HeadDim)
	case c.MaxPositions > maxPositions:
		return fmt.Errorf("max_position_embeddings %d, want at most %d: beyond, angles of the rotary embedding are not reduced exactly", c.MaxPositions, maxPositions)
	}
	return checkArch(c)
}

// inputFits refuses a model whose widest matrix input, a bf16 vector in shared
// memory, leaves a CTA no room for anything else.
func inputFits(c *models.Config, limit int) error {
	name, widest := "hidden_size", c.Hidden
	if c.Intermediate > widest {
		name, widest = "intermediate_size", c.Intermediate
	}
	if q := c.Heads * c.HeadDim; q > widest {
		name, widest = "num_attention_heads × head_dim", q
	}
	if 2*widest >= limit {
		return fmt.Errorf("%s is %d, want less than %d: such a vector takes %d bytes of shared memory, a CTA has %d", name,
			widest, limit/2, 2*widest, limit)
	}
	return nil
}

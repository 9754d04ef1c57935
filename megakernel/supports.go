package megakernel

import (
	"fmt"
	"slices"
	"strings"

	"github.com/mkgen/mkgen/models"
)

// Supports lists the features of a model that no template computes yet, each once and in the order of a step; none for a
// model that a kernel can be made of. It is the one place that refuses them.
func Supports(a *models.Arch) (missing []string) {
	lacks := func(has bool, feature string) {
		if has && !slices.Contains(missing, feature) {
			missing = append(missing, feature)
		}
	}
	lacks(a.Embed.Scale != 1, "a scaled embedding")
	for i := range a.Kinds {
		l := &a.Kinds[i]
		lacks(l.PreAttn.Kind == models.NoNorm, "layers without a norm before attention")
		lacks(l.Attn.QKVBias, "biases of q, k and v")
		lacks(l.Attn.QKNorm.Kind != models.NoNorm, "norms of q and k")
		lacks(l.Attn.Rope.Dims == 0, "layers without rotary embedding")
		lacks(l.Attn.Rope.Dims > 0 && l.Attn.Rope.Dims != l.Attn.HeadDim, "rotary embedding of a part of the head")
		lacks(l.Attn.Rope.Interleaved, "interleaved rotary embedding")
		if s := l.Attn.Rope.Scaling; s != nil {
			lacks(s.Type != models.ScalingLlama3, "rotary embedding scaled as "+string(s.Type))
		}
		lacks(l.Attn.Scale != models.PlainScale(l.Attn.HeadDim), "scores scaled by other than 1/sqrt(head_dim)")
		lacks(l.Attn.Window > 0, "a checkpoint's own sliding window")
		lacks(l.Attn.SoftCap > 0, "a checkpoint's own soft cap of scores")
		lacks(l.Attn.OBias, "a bias of attention's output projection")
		lacks(l.PostAttn.Kind != models.NoNorm, "a norm behind attention")
		lacks(l.PreMLP.Kind == models.NoNorm, "layers without a norm before the MLP")
		lacks(slices.ContainsFunc(normsOf(a, l), func(n models.Norm) bool { return n.PlusOne }), "norms that multiply by 1 + gain")
		lacks(l.MLP.Act != models.SiLU, fmt.Sprintf("the activation %s", l.MLP.Act))
		lacks(l.MLP.Bias, "biases of the MLP")
		lacks(l.PostMLP.Kind != models.NoNorm, "a norm behind the MLP")
		lacks(l.Residual != 1, "scaled residuals")
	}
	lacks(differentRopes(a), "rotary embeddings that differ by layer")
	lacks(a.Head.Scale != 1, "scaled logits")
	lacks(a.Head.SoftCap > 0, "a soft cap of logits")
	return missing
}

func normsOf(a *models.Arch, l *models.Layer) []models.Norm {
	n := l.Norms()
	return append(n[:], l.Attn.QKNorm, a.Final)
}

func differentRopes(a *models.Arch) bool {
	for i := range a.Kinds {
		if a.Kinds[i].Attn.Rope.String() != a.Kinds[0].Attn.Rope.String() {
			return true
		}
	}
	return false
}

// checkArch refuses a model with features that Supports lists.
func checkArch(c *models.Config) error {
	a := c.Arch()
	if missing := Supports(&a); len(missing) > 0 {
		return fmt.Errorf("the kernel does not have %s yet", strings.Join(missing, ", "))
	}
	return nil
}

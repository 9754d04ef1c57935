package synth

import (
	"fmt"
	"math"
	"math/bits"

	"github.com/mkgen/mkgen/models"
)

// The targets that the recipes aim at; tests and tests/gpu/reference.py --stats measure what comes out. The residual
// stream grows little, since every doubling of it multiplies the rounding errors of bf16 in a random network, and a
// gate that compares with a noisy reference lets small faults through.
const (
	gainMeanSquare = 13.0 / 12 // of U(0.5, 1.5): a normalised, gained vector has this mean square
	plusOneSD      = 0.29      // of gains w of a factor 1 + w: the same mean square
	queryKeySD     = 1.85      // of every element of q and of k: scores have about its square
	gateSD         = 1.5       // of the gate's argument of its activation
	gluRMS         = 0.88      // of SiLU(gate) * up for gate ~ N(0, 1.5), up ~ N(0, 1); GELU's is near it
	attentionRMS   = 0.75      // of attention's output for v ~ N(0, 1), scores of that spread
	firstSquare    = 4.0       // mean square of the residual stream where the growth starts
	growthSquare   = 5.0       // what is added to it by the last layer, whatever the number of layers
	biasShare      = 0.4       // of a bias, relative to what its projection gives
	signedGainSD   = 10.0      // of the last norm's gains where an embedding is scaled and is the LM head, too
)

// Tensors lists the tensors of a checkpoint of c in the order of models.Config.Tensors, packed ones once, with recipes
// that let a fault show: gains from U(0.5, 1.5), attention scores with a standard deviation of 3 or more, a residual
// stream whose size stays bounded over any number of layers, and logits whose standard
// deviation is sqrt(1.25 * bitlen(vocab)), where the top-1 probability of that many normal logits is neither flat nor
// certain. Sizes must be positive: else it panics.
func Tensors(c models.Config) []Tensor {
	if min(c.Layers, c.Hidden, c.Intermediate, c.Heads, c.KVHeads, c.HeadDim, c.Vocab) <= 0 {
		panic(fmt.Sprintf("BUG: synth.Tensors of %+v, want positive sizes", c))
	}
	a := c.Arch()
	var ts []Tensor
	for _, t := range c.Stored() {
		ts = append(ts, Tensor{t.Name, t.Shape, recipe(&a, &t.First)})
	}
	return ts
}

// recipe is how a tensor is filled. Packed tensors have that of their first role, so q, k, v of one tensor are equally
// large.
func recipe(a *models.Arch, t *models.Tensor) Recipe {
	normed := math.Sqrt(float64(a.Hidden) * gainMeanSquare) // fan-in of a normalised input
	if t.Layer < 0 {
		scaled := a.Head.Tied && a.Embed.Scale > 1
		if scaled { // as many gains are negative as positive: no token's own logit towers, and the embedding is small
			normed = math.Sqrt(float64(a.Hidden)) * signedGainSD
		}
		head := Normal(LogitSD(a.Vocab) / normed / a.Head.Scale)
		switch {
		case t.Role == models.RoleFinal && scaled:
			return Normal(signedGainSD)
		case t.Role == models.RoleFinal:
			return gain(a.Final)
		case t.Role == models.RoleHead || a.Head.Tied:
			return head
		}
		return Normal(math.Sqrt(firstSquare) / a.Embed.Scale)
	}
	l := a.Layer(t.Layer)
	attn, mlp := normed, normed
	residual := math.Sqrt(float64(a.Hidden) * (firstSquare + growthSquare/2)) // fan-in of the stream itself
	if l.PreAttn.Kind == models.NoNorm {
		attn = residual
	}
	if l.PreMLP.Kind == models.NoNorm {
		mlp = residual
	}
	// Scores are Scale·q·k: of another scale than 1/sqrt(dim), q and k make up for it.
	queryKey := queryKeySD * math.Sqrt(models.PlainScale(l.Attn.HeadDim)/l.Attn.Scale)
	branch := branchRMS(a, t.Layer) / l.Residual
	q := l.Attn.Heads * l.Attn.HeadDim
	switch t.Role {
	case models.RolePreAttn:
		return gain(l.PreAttn)
	case models.RolePreMLP:
		return gain(l.PreMLP)
	case models.RolePostAttn:
		return branchGain(l.PostAttn, branch)
	case models.RolePostMLP:
		return branchGain(l.PostMLP, branch)
	case models.RoleQNorm, models.RoleKNorm:
		return Normal(queryKey)
	case models.RoleQ, models.RoleK:
		return Normal(queryKey / attn)
	case models.RoleQBias, models.RoleKBias:
		return Normal(biasShare * queryKey)
	case models.RoleV:
		return Normal(1 / attn)
	case models.RoleVBias, models.RoleUpBias:
		return Normal(biasShare)
	case models.RoleO:
		return Normal(branch / attentionRMS / math.Sqrt(float64(q)))
	case models.RoleOBias, models.RoleDownBias:
		return Normal(biasShare * branch)
	case models.RoleGate:
		return Normal(gateSD / mlp)
	case models.RoleGateBias:
		return Normal(biasShare * gateSD)
	case models.RoleUp:
		return Normal(1 / mlp)
	case models.RoleDown:
		return Normal(branch / gluRMS / math.Sqrt(float64(l.MLP.Width)))
	}
	panic("BUG: synth: recipe of " + t.Role.String())
}

// gain is the recipe of a norm's gains.
func gain(n models.Norm) Recipe {
	if n.PlusOne {
		return Normal(plusOneSD)
	}
	return Gain()
}

// branchGain is gain of a norm behind a branch, which says how much the branch adds.
func branchGain(n models.Norm, branch float64) Recipe {
	r := Normal(branch)
	if n.PlusOne {
		r.Shift = -1
	}
	return r
}

// branchRMS is the size of what attention adds to the residual stream in a layer, and of what the MLP adds. An untied
// embedding starts at firstSquare and all layers share the growth. A tied one is as small as the LM head's rows, and a
// token's own logit would tower over the others if it remained most of the stream: layer 0 brings the stream to
// firstSquare, the others share.
func branchRMS(a *models.Arch, layer int) float64 {
	switch {
	case !a.Head.Tied:
		return math.Sqrt(growthSquare / float64(2*a.Layers()))
	case a.Layers() == 1:
		return math.Sqrt((firstSquare + growthSquare) / 2)
	case layer == 0:
		return math.Sqrt(firstSquare / 2)
	}
	return math.Sqrt(growthSquare / float64(2*(a.Layers()-1)))
}

// LogitSD is the standard deviation that the LM head's rows are scaled to give the logits of a vocabulary, whatever its
// size; the logits of a tied head stray from it, and so does the root mean square of a few.
func LogitSD(vocab int) float64 { return math.Sqrt(1.25 * float64(bits.Len(uint(vocab)))) }

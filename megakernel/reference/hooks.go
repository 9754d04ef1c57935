package reference

import (
	"github.com/mkgen/mkgen/models/half"
)

// Point names a place in the step where a Hooks.At is called.
type Point string

// The points of a step in their order; those of a layer repeat per layer, Normalised once a norm.
const (
	Embedded     Point = "embedded"      // [hidden], layer 0
	Normalised   Point = "normalised"    // [hidden], in every norm before its gain
	AttnNorm     Point = "attn_norm"     // [hidden], input of q, k and v
	Query        Point = "query"         // [heads*headDim], rotated
	Key          Point = "key"           // [kvHeads*headDim], rotated, about to enter the cache
	Value        Point = "value"         // [kvHeads*headDim], about to enter the cache
	QueryProj    Point = "query_proj"    // [heads*headDim], before its norm, where there is one
	QueryNorm    Point = "query_norm"    // [heads*headDim], behind it
	KeyProj      Point = "key_proj"      // [kvHeads*headDim], before its norm, where there is one
	KeyNorm      Point = "key_norm"      // [kvHeads*headDim], behind it
	AttnOut      Point = "attn_out"      // [heads*headDim], input of o
	AttnProj     Point = "attn_proj"     // [hidden], output of o
	AttnBranch   Point = "attn_branch"   // [hidden], o's output behind its norm, where there is one
	AttnResidual Point = "attn_residual" // [hidden], residual stream after attention
	MLPNorm      Point = "mlp_norm"      // [hidden], input of gate and up
	Gate         Point = "gate"          // [intermediate]
	Up           Point = "up"            // [intermediate]
	SiLUOut      Point = "silu"          // [intermediate], the activation of gate
	Activated    Point = "activated"     // [intermediate], the MLP's product, input of down
	MLPProj      Point = "mlp_proj"      // [hidden], output of down
	MLPBranch    Point = "mlp_branch"    // [hidden], down's output behind its norm, where there is one
	MLPResidual  Point = "mlp_residual"  // [hidden], residual stream after the MLP
	FinalNorm    Point = "final_norm"    // [hidden], layer = Layers, input of the LM head
	Logits       Point = "logits"        // [vocab], layer = Layers
)

// Hooks look into a step or change it: rounding as a kernel stores, faults to be caught. The zero value leaves it
// alone.
type Hooks struct {
	// At sees the vector at a point and may change it in place.
	At func(layer int, p Point, v []float64)
	// Product replaces MatVec, for every matrix.
	Product func(w []half.BF16, x []float64) []float64
	// Rotate replaces Rope for queries and keys.
	Rotate func(layer int, x []float64, pos int) []float64
	// Unrotated is whether a layer's queries and keys stay as they are, because Attend rotates them.
	Unrotated func(layer int) bool
	// Attend replaces Attention over the layer's cache, this token's key and value included; it returns
	// [heads*headDim].
	Attend func(layer int, q []float64, keys, values [][]float64) []float64
}

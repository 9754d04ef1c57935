package megakernel

import (
	"reflect"
	"slices"

	"github.com/mkgen/mkgen/dsl"
	"github.com/mkgen/mkgen/models"
	"github.com/mkgen/mkgen/tasks/attention"
	"github.com/mkgen/mkgen/tasks/grid"
	"github.com/mkgen/mkgen/tasks/product"
)

// Buffers of models that have more than Llama, or otherwise; see vectorBuffers and tables.
const (
	BufferBiases      = "biases"       // biases of a layer's matrices, in the order of their packed rows
	BufferQKGains     = "qk_gains"     // gains of the norms of q and k, in the order of their packed rows
	BufferRopeFactors = "rope_factors" // what cosines and sines are multiplied by
)

// kind is the description of a layer. Layers differ in windows and rotation only, so the first one's norms, biases and
// sizes are those of all; Supports refuses others.
func (mk *Kernel) kind() *models.Layer { return mk.described().Layer(0) }

// described is the model's mathematics, also of a Kernel that was not built, which has only its configuration.
func (mk *Kernel) described() *models.Arch {
	if mk.arch.Layers() == 0 {
		a := mk.Config.Arch()
		return &a
	}
	return &mk.arch
}

// ropes are the model's rotations, each once, and that of the layers in turn.
func (mk *Kernel) ropes() (list []models.Rope, turns attention.Turns) { return ropesOf(mk.described()) }

func ropesOf(a *models.Arch) (list []models.Rope, turns attention.Turns) {
	for l := range a.Layers() {
		r := a.Layer(l).Attn.Rope
		i := slices.IndexFunc(list, func(o models.Rope) bool { return o == r || o.String() == r.String() })
		if i < 0 {
			i, list = len(list), append(list, r)
		}
		turns = append(turns, i)
	}
	return list, turns[:period(turns)]
}

// period is the least number of elements that v consists of repetitions of, the last one perhaps cut short.
func period(v []int) int {
	for n := 1; n < len(v); n++ {
		same := true
		for i := n; i < len(v) && same; i++ {
			same = v[i] == v[i-n]
		}
		if same {
			return n
		}
	}
	return len(v)
}

// rotary is which elements of a head the model rotates together.
func rotary(a *models.Arch) attention.Rotary {
	list, _ := ropesOf(a)
	for _, r := range list {
		if r.Dims > 0 {
			rot := attention.Rotary{Dims: r.Dims, Interleaved: r.Interleaved}
			if r.Dims == a.Layer(0).Attn.HeadDim && !r.Interleaved {
				rot.Dims = 0
			}
			return rot
		}
	}
	return attention.Rotary{}
}

// ropeTable is a number for each pair of a head of each rotation: of for pairs that are rotated, else rest.
func (mk *Kernel) ropeTable(of func(r models.Rope) []float32, rest float32) (table []float32) {
	list, _ := mk.ropes()
	for _, r := range list {
		values := of(r)
		table = append(append(table, values...), slices.Repeat([]float32{rest}, mk.Config.HeadDim/2-len(values))...)
	}
	return table
}

// InvFreq is the content of the buffer "inv_freq", but for sequences of up to Config.ShortPositions tokens.
func (mk *Kernel) InvFreq() []float32 { return mk.invFreq(mk.Config.MaxPositions) }

// ShortInvFreq is the content of the buffer "inv_freq" for those.
func (mk *Kernel) ShortInvFreq() []float32 { return mk.invFreq(mk.Config.ShortPositions()) }

func (mk *Kernel) invFreq(positions int) []float32 {
	return mk.ropeTable(func(r models.Rope) []float32 { return r.InvFreq(positions) }, 0)
}

// RopeFactors is the content of BufferRopeFactors; nil where all factors are 1 and there is no such buffer.
func (mk *Kernel) RopeFactors() []float32 {
	list, _ := mk.ropes()
	if !slices.ContainsFunc(list, func(r models.Rope) bool { return r.Factor() != 1 }) {
		return nil
	}
	return mk.ropeTable(func(r models.Rope) []float32 { return slices.Repeat([]float32{float32(r.Factor())}, r.Dims/2) },
		1)
}

// UnscaledInvFreq is InvFreq of rotations without their scaling: what a check plants.
func (mk *Kernel) UnscaledInvFreq() []float32 {
	return mk.ropeTable(func(r models.Rope) []float32 {
		r.Scaling = nil
		return r.InvFreq(mk.Config.MaxPositions)
	}, 0)
}

// OwnAttention is Options.Attention of the attention that the model was trained with; nothing for plain attention.
func (mk *Kernel) OwnAttention() string { return ownAttention(&mk.Config) }

// FeatureFaults lists the faults of what the model has beyond Llama, and the kernel beyond bf16.
func (mk *Kernel) FeatureFaults() []Fault {
	return withFixed(FeatureFaults(mk.described(), mk.Options.Attention), &mk.Options)
}

// PlusOne is whether norms multiply by 1 + gain.
func (mk *Kernel) PlusOne() bool { return mk.described().Final.PlusOne }

// NormRoles are the norms of a layer that a model has, in the order of their rows of the buffer "gains".
func (mk *Kernel) NormRoles() (roles []models.Role) {
	for i, n := range mk.kind().Norms() {
		if n.Kind != models.NoNorm {
			roles = append(roles, []models.Role{models.RolePreAttn, models.RolePostAttn, models.RolePreMLP,
				models.RolePostMLP}[i])
		}
	}
	return roles
}

// gainRow is a norm's row of the buffer "gains".
func (b *builder) gainRow(layer dsl.Val[dsl.U32], r models.Role) dsl.Val[dsl.U32] {
	roles := b.mk.NormRoles()
	row := layer.MulC(len(roles))
	if i := slices.Index(roles, r); i > 0 {
		row = row.AddC(i)
	}
	return row
}

// finalGain is the final norm's row.
func (mk *Kernel) finalGain() int { return len(mk.NormRoles()) * mk.Config.Layers }

// biasRoles are the biases of the rows of matrix i, one below the other, where it has some.
func (mk *Kernel) biasRoles(i int) []models.Role {
	l := mk.kind()
	switch {
	case i == MatrixQKV && l.Attn.QKVBias:
		return []models.Role{models.RoleQBias, models.RoleKBias, models.RoleVBias}
	case i == MatrixO && l.Attn.OBias:
		return []models.Role{models.RoleOBias}
	case i == MatrixGateUp && l.MLP.Bias:
		return []models.Role{models.RoleGateBias, models.RoleUpBias}
	case i == MatrixDown && l.MLP.Bias:
		return []models.Role{models.RoleDownBias}
	}
	return nil
}

// matrixRows is how many rows matrix i of a layer has, without padding.
func (mk *Kernel) matrixRows(i int) int {
	c := &mk.Config
	return []int{(c.Heads + 2*c.KVHeads) * c.HeadDim, c.Hidden, 2 * c.Intermediate, c.Hidden}[i]
}

// biasLen is how many biases a layer has up to matrix i, itself not included.
func (mk *Kernel) biasLen(i int) (n int) {
	for j := range i {
		if mk.biasRoles(j) != nil {
			n += mk.matrixRows(j)
		}
	}
	return n
}

// biasesOf are the biases of matrix i; nil where it has none.
func (b *builder) biasesOf(i int) func(s attention.Step) product.Rows {
	if b.mk.biasRoles(i) == nil || b.mk.Options.Fault == FaultBias {
		return nil
	}
	each, from := b.mk.biasLen(layerMatrices), b.mk.biasLen(i)
	return func(s attention.Step) product.Rows {
		return product.RowsOf(b.bufs.biases, s.Layer.MulC(each).AddC(from))
	}
}

// biasRows are the biases of matrix i in a step's layer; nil where it has none.
func (b *builder) biasRows(s attention.Step, i int) product.Rows {
	if of := b.biasesOf(i); of != nil {
		return of(s)
	}
	return nil
}

// glu is what the MLP makes of gate and up.
func (b *builder) glu(s attention.Step) product.GLU {
	return product.GLU{GELU: b.mk.kind().MLP.Act == models.GELUTanh, Bias: b.biasRows(s, MatrixGateUp)}
}

// qkv is the projection of q, k and v but for where they go.
func (b *builder) qkv() attention.QKV {
	c, a := &b.mk.Config, &b.mk.kind().Attn
	q := attention.QKV{Heads: c.Heads, KV: b.mk.KV, InvFreq: b.bufs.invFreq, Q: b.bufs.q, RotateFor: b.rotatedFor(),
		Factors: b.bufs.ropeFactors, Bias: b.biasesOf(MatrixQKV), Grows: attention.Growth(a.Grows)}
	if a.Scale != models.PlainScale(a.HeadDim) {
		q.Scale = a.Scale
	}
	if b.mk.Options.Fault == FaultGrowth {
		q.Grows = attention.Growth{}
	}
	if list, turns := b.mk.ropes(); len(list) > 1 {
		q.Kind = func(s attention.Step) dsl.Val[dsl.U32] {
			kind := b.k.U32(0)
			for i := 1; i < len(list); i++ {
				to := i
				if b.mk.Options.Fault == FaultRopeBase {
					to = 0
				}
				kind = dsl.Select(turns.Is(b.k, s.Layer, i), b.k.U32(to), kind)
			}
			return kind
		}
	}
	if n := a.QKNorm; n.Kind != models.NoNorm {
		rows := (c.Heads + c.KVHeads) * c.HeadDim
		q.Norm = &attention.HeadNorm{Eps: n.Eps, PlusOne: b.mk.plusOne(n), Wide: a.QKNormWide, Sums: b.bufs.qkSums,
			Raw: b.bufs.rawQK, KeysAsTheyAre: b.mk.Options.Fault == FaultQKNorm,
			Gain: func(s attention.Step) product.Rows { return product.RowsOf(b.bufs.qkGains, s.Layer.MulC(rows)) }}
	}
	return q
}

// plusOne is whether a norm multiplies by 1 + gain.
func (mk *Kernel) plusOne(n models.Norm) bool { return n.PlusOne && mk.Options.Fault != FaultPlusOne }

// declareFeatures declares what the above reads.
func (mk *Kernel) declareFeatures(k *dsl.Kernel, b *buffers) {
	c, o, ro := &mk.Config, &mk.Options, dsl.ReadOnly()
	list, _ := mk.ropes()
	doc := bufDoc("[%d] RoPE, radians a position", c.HeadDim/2)
	if len(list) > 1 {
		doc = bufDoc("[%d][%d] RoPE, radians a position, of each kind of layer", len(list), c.HeadDim/2)
	}
	b.invFreq = dsl.Global[dsl.F32](k, "inv_freq", elements(len(list), c.HeadDim/2), ro, doc)
	if mk.RopeFactors() != nil {
		b.ropeFactors = dsl.Global[dsl.F32](k, BufferRopeFactors, elements(len(list), c.HeadDim/2), ro,
			bufDoc("[%d][%d] what cosines and sines are multiplied by", len(list), c.HeadDim/2))
	}
	if n := mk.biasLen(layerMatrices); n > 0 {
		b.biases = dsl.Global[dsl.BF16](k, BufferBiases, elements(c.Layers, n), ro, dsl.Align(16),
			bufDoc("[%d][%d] biases of a layer's packed rows", c.Layers, n))
	}
	if a := &mk.kind().Attn; a.QKNorm.Kind != models.NoNorm {
		rows := (c.Heads + c.KVHeads) * c.HeadDim
		b.qkGains = dsl.Global[dsl.BF16](k, BufferQKGains, elements(c.Layers, rows), ro, dsl.Align(16),
			bufDoc("[%d][%d] gains of the norms of q and k, of their packed rows", c.Layers, rows))
		switch {
		case b.prefill: // see prefillFlow.declareNorms
		case mk.Ragged():
			b.rawQK = dsl.Global[dsl.B128](k, "raw_qk", elements(o.Tokens, rows/2),
				bufDoc("[%d rows] queries [%d][%d], then keys [%d][%d], before their norm: a pair, and the sum of its squares",
					o.Tokens, c.Heads, c.HeadDim/2, c.KVHeads, c.HeadDim/2))
		case a.QKNormWide:
			b.qkSums = dsl.Global[dsl.B128](k, BufferQKSums, elements(o.SMs),
				bufDoc("[%d] packets: each SM's sums of squares of q and of k, and a flag", o.SMs))
		}
	}
}

// BufferQKSums is the buffer of sums of squares of q and k, with norms of all heads together.
const BufferQKSums = "qk_sums"

// embeddings are a token's embedding, and what it is multiplied by.
type embeddings struct {
	of interface {
		Row(e *grid.Env, token dsl.Val[dsl.U32]) product.Vector
	}
	factor float64
}

// Row is the embedding of a token.
func (m embeddings) Row(e *grid.Env, token dsl.Val[dsl.U32]) product.Vector {
	return product.Scaled(e, m.of.Row(e, token), m.factor)
}

// logit is what the LM head's product becomes, a norm's scale on it.
func (b *builder) logit(y dsl.Val[dsl.F32]) dsl.Val[dsl.F32] {
	h := &b.mk.arch.Head
	if h.Scale != 1 {
		y = y.Mul(b.k.F32(h.Scale))
	}
	if b.mk.Options.Fault == FaultLogitCap {
		return y
	}
	return product.Cap(b.k, h.SoftCap, y)
}

// plainLogits is whether logits are the LM head's products.
func (mk *Kernel) plainLogits() bool { return mk.arch.Head.Scale == 1 && mk.arch.Head.SoftCap == 0 }

// beyondLlama is whether layers have anything that Llama's have not. Llama's kernels keep what the compiler moves in
// front of loops in registers, and were measured so; kernels of more features have too few registers for it.
func (mk *Kernel) beyondLlama() bool { return !reflect.DeepEqual(mk.Config.Traits, models.Traits{}) }

package megakernel

import (
	"github.com/mkgen/mkgen/dsl"
	"github.com/mkgen/mkgen/models"
	"github.com/mkgen/mkgen/tasks/attention"
	"github.com/mkgen/mkgen/tasks/prefill"
)

// prefillSyncs are the barriers of a layer of a prefill kernel: how many, and which of them keys and values, and a
// product's input, wait for, counted from the layer's first.
type prefillSyncs struct {
	all, keys int
	inputs    [prefillMatrices]int
}

// layerSyncs counts them: one behind every product and attention, one behind norms of all of q and of k, one behind
// each branch that is added behind a norm, one behind the rounding of each product's input to e4m3, and one behind the
// parts of a product.
func (p *Prefill) layerSyncs() (s prefillSyncs) {
	l, branch := p.Of.kind(), 0
	if p.Of.kept() {
		branch = 1
	}
	rounds := 0
	if p.Options.coded() {
		rounds = 1
	}
	s.inputs[MatrixQKV] = rounds
	s.keys = rounds + 1
	if l.Attn.QKNorm.Kind != models.NoNorm && !p.byHead() {
		s.keys++
	}
	s.inputs[MatrixO] = s.keys + 1 + rounds
	s.inputs[MatrixGateUp] = s.inputs[MatrixO] + 1 + branch + rounds
	s.inputs[MatrixDown] = s.inputs[MatrixGateUp] + 1 + rounds
	s.all = s.inputs[MatrixDown] + 1 + branch
	if p.KParts[MatrixDown] > 1 { // the parts, and their sums
		s.all++
	}
	if p.Options.several() { // behind the picked vectors
		s.inputs[prefillHead] = 1
	}
	return s
}

// declareNorms declares sums of squares, and what a norm keeps until they are known.
func (f *prefillFlow) declareNorms() {
	mk, k, room := f.mk, f.k, f.p.Room()
	c, l := &mk.Config, f.mk.kind()
	norm := func(name, of string, i int, n models.Norm) *prefill.Norm {
		parts := f.gemms[i].Tiles()
		sq := dsl.Global[dsl.F32](k, name, elements(room, parts), dsl.Align(16),
			bufDoc("[%d][%d] sums of squares of %s, in parts", room, parts, of))
		return &prefill.Norm{N: c.Hidden, Eps: n.Eps, SQ: sq, Parts: parts}
	}
	f.residuals, f.branches = map[int]*prefill.Residual{}, map[int]*prefill.Branch{}
	for n, i := range [...]int{MatrixDown, MatrixO} { // what QKV's norm has is behind down, or the embedding
		of, post := [...]models.Norm{mk.arch.Final, l.PreMLP}[n], [...]models.Norm{l.PostMLP, l.PostAttn}[n]
		r := &prefill.Residual{Out: f.activations(c.Hidden), X: f.bufs.x, Next: f.normed, Gain: f.bufs.gains,
			PlusOne: mk.plusOne(mk.arch.Final),
			None:    [...]models.Norm{l.PreAttn, l.PreMLP}[n].Kind == models.NoNorm}
		if of.Kind != models.NoNorm {
			f.norms[n] = norm([...]string{"squares", "squares_mlp"}[n], "the residual vectors", i, of)
			r.Norm = *f.norms[n]
		}
		f.residuals[i] = r
		if post.Kind != models.NoNorm {
			f.branches[i] = &prefill.Branch{N: c.Hidden, Norm: *norm([...]string{"squares_down", "squares_o"}[n],
				"what is added", i, post),
				PlusOne: mk.plusOne(post), Factor: l.Residual, Unscaled: mk.Options.Fault == FaultPostNorm && i == MatrixO}
		}
	}
	f.final = f.norms[0]
	if l.PreAttn.Kind == models.NoNorm {
		f.norms[0] = nil
	}
	if len(f.branches) > 0 {
		y := dsl.Global[dsl.F32](k, "branch", elements(room, c.Hidden), dsl.Align(16),
			bufDoc("[%d][%d] what attention or the MLP adds, before its norm", room, c.Hidden))
		f.branches[MatrixO].Y, f.branches[MatrixDown].Y = y, y
	}
	if f.syncs.keys > 1 {
		rows := (c.Heads + c.KVHeads) * c.HeadDim
		f.bufs.rawQK = dsl.Global[dsl.B128](k, "raw_qk", elements(room, rows/2),
			bufDoc("[%d tokens] queries [%d][%d], then keys [%d][%d], before their norm: a pair, and the sum of its squares",
				room, c.Heads, c.HeadDim/2, c.KVHeads, c.HeadDim/2))
	}
}

// add is the phase that adds what matrix i has made behind its norm, where it has one: for the next product, or behind
// the last layer for the LM head.
func (f *prefillFlow) add(s attention.Step, i int, span prefill.Span) {
	b := f.branches[i]
	if b == nil {
		return
	}
	add := func(r *prefill.Residual, next, own dsl.Val[dsl.U32]) {
		r.Add(f.env, span, next, f.p.Options.Padded(), b, own)
	}
	r, l := f.residuals[i], f.mk.kind()
	switch {
	case i == MatrixO:
		f.phase("add_attention", true, func() {
			add(r, f.gainRow(s.Layer, models.RolePreMLP), f.gainRow(s.Layer, models.RolePostAttn))
		})
	case l.PreAttn.Kind != models.NoNorm: // the final norm's gains lie behind the last layer's
		f.phase("add_mlp", true, func() {
			add(r, f.gainRow(s.Layer.AddC(1), models.RolePreAttn), f.gainRow(s.Layer, models.RolePostMLP))
		})
	default:
		final := *r
		final.None = false
		f.phase("add_mlp", true, func() {
			own := f.gainRow(s.Layer, models.RolePostMLP)
			f.k.IfElse(s.Layer.LtC(f.mk.Config.Layers-1), func() { add(r, f.k.U32(0), own) },
				func() { add(&final, f.k.U32(f.mk.finalGain()), own) })
		})
	}
}

// declareCodes declares what an input is rounded to in e4m3, where products take that.
func (f *prefillFlow) declareCodes() {
	most, room := 0, f.p.Room()
	for i := range layerMatrices {
		if in := f.p.gemm(i).Input; in != nil {
			most = max(most, in.K)
		}
	}
	if most == 0 {
		return
	}
	f.codes = dsl.Global[dsl.U32](f.k, "codes", elements(room, most/4), dsl.Align(128),
		bufDoc("[%d][up to %d] the next product's input in e4m3, as tiles of 8 tokens", room, most))
	f.scales = dsl.Global[dsl.F32](f.k, "token_scales", elements(room), dsl.Align(16),
		bufDoc("[%d] its scales", room))
}

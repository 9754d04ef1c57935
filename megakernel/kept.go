package megakernel

import (
	"github.com/mkgen/mkgen/dsl"
	"github.com/mkgen/mkgen/models"
	"github.com/mkgen/mkgen/pipeline"
	"github.com/mkgen/mkgen/tasks/attention"
	"github.com/mkgen/mkgen/tasks/product"
)

// regionResidual holds the residual vector of a kernel of one row, where norms stand behind attention and the MLP.
const regionResidual = "residual"

// kept is whether norms stand behind attention and the MLP, so that what they add is known when all of it is: a kernel
// of one row keeps the residual vector in every SM then (product.Kept), one of several rows adds in phases of their
// own.
func (mk *Kernel) kept() bool { return mk.kind().PostAttn.Kind != models.NoNorm }

// addedAt is where in the region of a product's input a vector that is added lies, in bytes: behind the input.
func (mk *Kernel) addedAt() int {
	columns := mk.Options.inputColumns()
	return 2 * pipeline.CeilDiv(mk.Config.Hidden, columns) * columns
}

// kept is the residual vector as it is when what comes behind the norm of a role is added, in a step's layer.
func (v *vectors) kept(s attention.Step, r models.Role) *product.Kept {
	f := v.f
	l, n := f.mk.kind(), f.mk.Config.Hidden
	norm := l.PostAttn
	if r == models.RolePostMLP {
		norm = l.PostMLP
	}
	k := &product.Kept{N: n, X: f.residual, Y: f.shared, From: f.mk.addedAt() / 4, Eps: norm.Eps, Gain: f.bufs.gains,
		PlusOne: f.mk.plusOne(norm), Factor: l.Residual, Early: f.added, Skip: f.mk.Options.Fault == FaultPostNorm &&
			r == models.RolePostAttn}
	if f.mk.Options.Probe {
		f.probeKept(k, s, r)
	}
	return k
}

// probeKept stores the sums, which every SM makes, in CTA 0.
func (f *single) probeKept(k *product.Kept, s attention.Step, r models.Role) {
	n, row := f.mk.Config.Hidden, s.Layer.MulC(2)
	if r == models.RolePostMLP {
		row = row.MaxC(1).SubC(1)
	}
	k.Also = func(at dsl.Val[dsl.U32], x []dsl.Val[dsl.F32]) {
		f.k.If(f.env.CTA.EqC(0), func() { f.bufs.probeResiduals.StoreN(row.MulC(n).Add(at), x) })
	}
}

// plus is that vector with the output of attention, or of the MLP of the layer before, added.
func (v *vectors) plus(k *product.Kept, layer dsl.Val[dsl.U32], r models.Role) product.Source {
	phase := phaseO
	if r == models.RolePostMLP {
		phase = phaseDown
	}
	return k.Plus(v.source(phase), v.f.addedRow(layer, r))
}

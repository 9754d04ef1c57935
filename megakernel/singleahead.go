package megakernel

import (
	"slices"

	"github.com/mkgen/mkgen/dsl"
	"github.com/mkgen/mkgen/models"
	"github.com/mkgen/mkgen/tasks/attention"
	"github.com/mkgen/mkgen/tasks/product"
)

// What phases of one row read before their input is there.

// readAhead gives a phase of a layer what it reads before its input is there.
func (f *single) readAhead(p *phase, qkv *attention.QKV, to *vectors) {
	e := f.env
	switch p.Matrix {
	case f.mk.matrix(MatrixQKV).Name:
		p.early = func(s attention.Step) {
			f.fetchGains(s, models.RolePreAttn, MatrixQKV)
			f.fetchAdded(s, models.RolePostMLP, MatrixQKV)
			qkv.Early.Fetch(e, f.own.matrix(MatrixQKV),
				func(row dsl.Val[dsl.U32]) []dsl.Val[dsl.F32] { return qkv.Ahead(e, s, row) })
		}
	case f.mk.matrix(MatrixO).Name:
		p.residual = f.fetchResidual(MatrixO, to.addedToInO)
	case f.mk.matrix(MatrixGateUp).Name:
		p.early = func(s attention.Step) {
			f.fetchGains(s, models.RolePreMLP, MatrixGateUp)
			f.fetchAdded(s, models.RolePostAttn, MatrixGateUp)
		}
	case f.mk.matrix(MatrixDown).Name:
		p.residual = f.fetchResidual(MatrixDown, to.addedToInDown)
	}
}

func (f *single) startEarly() {
	f.early.Start(f.env)
	f.gains.Start(f.env)
	if f.added != nil {
		f.added.Start(f.env)
	}
}

// earlyOf is what is fetched for matrix i's product.
func (f *single) earlyOf(i int) *product.Fetched {
	if !f.mlp.addsEarly(i) {
		return nil
	}
	if f.mk.kept() && (i == MatrixO || i == MatrixDown) {
		return nil // nothing is added to here
	}
	each := 2
	if i == MatrixO || i == MatrixDown { // product.FourRows
		each = 4
	}
	return f.early.Of(f.env, f.gemv(i), each)
}

// fetchResidual fetches the residual vector's elements that matrix i's product is added to; nil
// where that is not done early.
func (f *single) fetchResidual(i int, old func(s attention.Step) product.Vector) func(s attention.Step) {
	early := f.earlyOf(i)
	if early == nil {
		return nil
	}
	return func(s attention.Step) {
		early.Fetch(f.env, f.own.matrix(i), func(row dsl.Val[dsl.U32]) []dsl.Val[dsl.F32] { return old(s)(row) })
	}
}

// fetchGains fetches the gains of a layer's norm, where it has that, for matrix i's input.
func (f *single) fetchGains(s attention.Step, r models.Role, i int) {
	if slices.Contains(f.mk.NormRoles(), r) {
		f.gains.Fetch(f.env, f.gainRow(s.Layer, r), f.order(i))
	}
}

// fetchAdded fetches the gains of the norm behind the branch that a phase adds to the residual vector first: the
// layer's own attention, or the MLP of the layer before. i is the matrix whose input is staged then.
func (f *single) fetchAdded(s attention.Step, r models.Role, i int) {
	if f.added != nil {
		f.added.Fetch(f.env, f.addedRow(s.Layer, r), f.order(i))
	}
}

func (f *single) addedRow(layer dsl.Val[dsl.U32], r models.Role) dsl.Val[dsl.U32] {
	if r == models.RolePostMLP { // of layer 0 there is none before: any row will do
		layer = layer.MaxC(1).SubC(1)
	}
	return f.gainRow(layer, r)
}

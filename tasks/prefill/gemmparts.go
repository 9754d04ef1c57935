package prefill

import (
	"github.com/mkgen/mkgen/dsl"
	"github.com/mkgen/mkgen/pipeline"
	"github.com/mkgen/mkgen/tasks/grid"
	"github.com/mkgen/mkgen/tasks/internal/rule"
)

// How a product's columns are split where its tiles are too few for the grid.

// split is the number of parts of the columns.
func (g *GEMM) split() int { return max(1, g.Parts) }

// ownSteps is the number of stages of columns of a part.
func (g *GEMM) ownSteps() int { return g.steps() / g.split() }

// threadSums is how many sums a thread has of a tile.
func (g *GEMM) threadSums() int { return g.Columns / 2 }

// SumsLen is the length of Sums for t tokens: [tile][CTA of the cluster][part][threadSums / 4][thread][4].
func (g *GEMM) SumsLen(t int) int64 {
	units := g.Tiles() * pipeline.CeilDiv(t, g.Together())
	if g.Apart {
		units /= g.Cluster
	}
	return int64(units*g.Cluster*g.split()) * int64(g.threadSums()*g.Groups*groupThreads)
}

func (g *GEMM) splitRule() rule.Rule {
	if g.split() == 1 {
		return rule.Sound("")
	}
	return rule.Sound(rule.First(
		rule.Need(g.steps()%g.split() == 0, "%s: %d stages of columns in %d parts, want a multiple", g.Name, g.steps(),
			g.split()),
		rule.Need(g.Sums.Len() >= g.SumsLen(1), "%s: Sums has %d elements, want %d or more", g.Name, g.Sums.Len(),
			g.SumsLen(1))))
}

// sumsAt is where a thread's first four sums of part number part of this CTA's u-th tile are; the next four are
// Threads·4 behind.
func (g *GEMM) sumsAt(e *grid.Env, u, part u32) u32 {
	at := u
	if g.Cluster > 1 {
		at = at.MulC(g.Cluster).Add(e.CTA.RemC(g.Cluster))
	}
	return at.MulC(g.split()).Add(part).MulC(g.threadSums() * e.Threads()).Add(e.Tid.MulC(4)).Named("sums")
}

// keep stores a thread's sums of the u-th tile of parts.
func (g *GEMM) keep(e *grid.Env, u u32, sums []*dsl.Var[dsl.F32]) {
	e.K.Note("%s: the sums of a part of the columns, for who adds the parts", g.Name)
	at := g.sumsAt(e, u.DivC(g.split()), u.RemC(g.split()))
	for i := 0; i < len(sums); i += 4 {
		var four []f32
		for _, s := range sums[i : i+4] {
			four = append(four, s.Get())
		}
		g.Sums.StoreN(at.AddC(i*e.Threads()), four)
	}
}

// Finish adds the parts of this CTA's tiles in their order, and finishes them. All consumer warps run it, behind a sync
// of all CTAs behind Consume.
func (g *GEMM) Finish(e *grid.Env, layer u32, span Span, epilogue Epilogue) {
	k := e.K
	k.Note("%s: this CTA's tiles, of which the parts are added", g.Name)
	units := g.units(e, span)
	k.ForStep(e.CTA.DivC(g.Cluster), units.n.DivC(g.split()), e.Grid/g.Cluster, func(i u32) {
		u := g.whole(e, i, units, span)
		sums := dsl.NewArray(k.F32(0), g.threadSums(), "sum")
		for part := range g.split() {
			at := g.sumsAt(e, i, k.U32(part))
			for j := 0; j < len(sums); j += 4 {
				for n, v := range g.Sums.LoadN(at.AddC(j*e.Threads()), 4) {
					if part > 0 {
						v = sums[j+n].Get().Add(v)
					}
					sums[j+n].Set(v)
				}
			}
		}
		g.finish(e, layer, u, sums, epilogue)
	}, dsl.Unroll(1))
}

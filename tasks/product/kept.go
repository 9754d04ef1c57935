package product

import (
	"github.com/mkgen/mkgen/dsl"
	"github.com/mkgen/mkgen/pipeline"
	"github.com/mkgen/mkgen/pipeline/i4"
	"github.com/mkgen/mkgen/tasks/grid"
)

// Kept is a residual vector that every CTA keeps in shared memory of its own: what models with norms behind attention
// and the MLP add to it (Gemma 2 and 3, OLMo-2, GLM-4) is norm(y), whose factor is known when all of y is. So SMs hand
// on y and not the sum, and every one adds for itself, in the same order: all have the same bits.
type Kept struct {
	N       int
	X       dsl.Buf[dsl.F32]  // shared memory, [N]
	Y       dsl.Buf[dsl.F32]  // shared memory: the vector that is added, while it is
	From    int               // where it begins in Y, a multiple of 4
	Eps     float64           // of the norm of what is added
	Gain    dsl.Buf[dsl.BF16] // of all norms, [norms][N]
	PlusOne bool              // the factor of an element is 1 + gain
	Factor  float64           // of norm(y), as it is added
	Skip    bool              // plants a fault: y gets its gains, and no more
	Early   *Gains            // where this norm's gains have been fetched to; nil for nowhere

	// Also, unless nil, is told elements of the vector behind an addition.
	Also func(at u32, x []f32)
}

// Begin is the source of the vector that it begins with.
func (t *Kept) Begin(from Source) Source { return keptFirst{t, from} }

type keptFirst struct {
	*Kept
	from Source
}

func (t keptFirst) elements(e *grid.Env, n int, begin func(i u32) func(x []f32)) {
	t.from.elements(e, n, func(i u32) func(x []f32) {
		use := begin(i)
		return func(x []f32) {
			t.X.StoreN(i.MulC(4), x)
			use(x)
		}
	})
}

func (t keptFirst) four(e *grid.Env, i u32) []f32 {
	x := t.from.four(e, i)
	t.X.StoreN(i.MulC(4), x)
	return x
}

// Plus is the source of the vector with the norm of y added, whose gains are row norm of Gain.
func (t *Kept) Plus(y Source, norm u32) Source { return keptSum{t, y, norm} }

type keptSum struct {
	*Kept
	y    Source
	norm u32
}

// elements goes through y twice: for the sum of squares, and for the vector. A thread sees the same elements both
// times. In between it keeps them, and those of the vector, in registers; where it has too many, y in Y.
func (t keptSum) elements(e *grid.Env, n int, begin func(i u32) func(x []f32)) {
	k, norm := e.K, dsl.Optional(t.norm)
	squares := dsl.NewVar(k.F32(0), "squares")
	var own [][2][]*dsl.Var[dsl.F32] // of this thread's fours those of y and of the vector
	if fours := pipeline.CeilDiv(n/4, e.Threads()); fours <= maxEarlyGains {
		for range fours {
			own = append(own, [2][]*dsl.Var[dsl.F32]{
				dsl.NewArray(k.F32(0), 4, "y"), dsl.NewArray(k.F32(0), 4, "x")})
		}
	}
	first := 0
	t.y.elements(e, n, func(i u32) func(y []f32) {
		nth := first
		first++
		var x []f32
		if own != nil {
			x = t.X.LoadN(i.MulC(4), 4)
		}
		return func(y []f32) {
			s := squares.Get()
			for _, v := range y {
				s = dsl.FMA(v, v, s)
			}
			squares.Set(s)
			if own == nil {
				t.Y.StoreN(i.MulC(4).AddC(t.From), y)
				return
			}
			for j := range y {
				own[nth][0][j].Set(y[j])
				own[nth][1][j].Set(x[j])
			}
		}
	})
	mean := dsl.CTASum(squares.Get(), e.Scratch, 0, e.Consumers, e.Sync).Mul(k.F32(1 / float64(t.N)))
	scale := dsl.Rsqrt(mean.Add(k.F32(t.Eps)))
	if t.Skip {
		dsl.Optional(scale)
		scale = k.F32(1)
	}
	if t.Factor != 1 {
		scale = scale.Mul(k.F32(t.Factor))
	}
	scale = scale.Named("added_scale")
	e.Sync() // Scratch is used again
	if p := t.Early.problem(t.N, e.Order()); p != "" {
		k.Require(false, "%s", p)
	}
	gains, nth := t.Early, 0
	if gains == nil {
		gains = &Gains{N: t.N, Gain: t.Gain}
	}
	e.EachConsumer(n/4, func(i u32) {
		g := gains.of(e, norm, i, nth)
		use := begin(i)
		var x, y []f32
		if own != nil {
			for j := range 4 {
				y, x = append(y, own[nth][0][j].Get()), append(x, own[nth][1][j].Get())
			}
		} else {
			x, y = t.X.LoadN(i.MulC(4), 4), t.Y.LoadN(i.MulC(4).AddC(t.From), 4)
		}
		nth++
		for j, p := range g {
			lo, hi := GainsOf(k, p, t.PlusOne)
			x[2*j] = dsl.FMA(y[2*j].Mul(scale), lo, x[2*j])
			x[2*j+1] = dsl.FMA(y[2*j+1].Mul(scale), hi, x[2*j+1])
		}
		t.X.StoreN(i.MulC(4), x)
		if t.Also != nil {
			t.Also(i.MulC(4), x)
		}
		use(x)
	})
}

// four has not been needed: it would have to know the sum of all squares.
func (t keptSum) four(e *grid.Env, _ u32) []f32 {
	e.K.Require(false, "residual vector of %d elements beside a norm: want a multiple of %d where a product's input is fixed point", t.N, i4.Columns)
	return zeros(e)(e.K.U32(0))
}

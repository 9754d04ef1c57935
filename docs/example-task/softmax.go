// Package softmax is a task template written outside of mkgen's module: the
// softmax of a long vector at a temperature. docs/writing-a-task.md explains it
// line by line.
package softmax

import (
	"fmt"
	"math"

	"github.com/mkgen/mkgen/dsl"
	"github.com/mkgen/mkgen/pipeline"
	"github.com/mkgen/mkgen/tasks/grid"
)

// Short names for device types.
type (
	f32 = dsl.Val[dsl.F32]
	u32 = dsl.Val[dsl.U32]
)

// Softmax computes p[i] = exp(x[i]/T) / Σ exp(x[j]/T), all in f32. The vector is
// dealt out to the CTAs in chunks that go through the ring, twice: Reduce finds
// each CTA's maximum and sum, a sync follows, and Write scales.
//
// −inf gives 0. NaN or +inf makes every p NaN; so does a vector of nothing but −inf.
type Softmax struct {
	N           int     // length of x, a multiple of 4
	Temperature float64 // T, above 0
	Chunk       int     // elements of one chunk, a multiple of 4 that fits a stage

	X       dsl.Buf[dsl.F32] // [N] in
	P       dsl.Buf[dsl.F32] // [N] out
	Partial dsl.Buf[dsl.F32] // [CTAs][2] maximum and sum of each CTA's share
	Shares  dsl.Buf[dsl.U32] // [CTAs+1] first chunk of each CTA, see ShareTable
	Scratch dsl.Buf[dsl.F32] // shared memory, 2 elements a consumer warp
}

// Chunks is the number of chunks; the last may be short.
func (t *Softmax) Chunks() int { return (t.N + t.Chunk - 1) / t.Chunk }

// ShareTable is the contents of Shares for a number of CTAs.
func (t *Softmax) ShareTable(ctas int) []uint32 {
	var first []uint32
	for i := range ctas + 1 {
		first = append(first, uint32(i*t.Chunks()/ctas))
	}
	return first
}

// problem says what the template cannot do, or nothing.
func (t *Softmax) problem(r *pipeline.Ring) string {
	switch {
	case t.N < 1 || t.N%4 != 0:
		return fmt.Sprintf("length %d is not a positive multiple of 4", t.N)
	case t.Chunk < 1 || t.Chunk%4 != 0:
		return fmt.Sprintf("chunk of %d elements is not a positive multiple of 4", t.Chunk)
	case 4*t.Chunk > r.StageBytes():
		return fmt.Sprintf("chunk of %d elements is %d bytes, a stage has %d", t.Chunk, 4*t.Chunk, r.StageBytes())
	case !(t.Temperature > 0):
		return fmt.Sprintf("temperature %g is not above 0", t.Temperature)
	}
	return ""
}

// eachChunk calls body for this CTA's chunks with the first element and the
// number of elements.
func (t *Softmax) eachChunk(e *grid.Env, body func(from, n u32)) {
	first := dsl.Uniform(t.Shares.Load(e.CTA), dsl.CTAScope).Named("first")
	end := dsl.Uniform(t.Shares.Load(e.CTA.AddC(1)), dsl.CTAScope).Named("end")
	e.K.For(first, end, func(c u32) {
		from := c.MulC(t.Chunk).Named("from")
		body(from, e.K.U32(t.N).Sub(from).MinC(t.Chunk).Named("n"))
	}, dsl.Unroll(1))
}

// Produce streams this CTA's chunks once. It runs in the producer warp, once
// for Reduce and once for Write.
func (t *Softmax) Produce(e *grid.Env, p *pipeline.Producer) {
	if t.problem(p.Ring()) != "" {
		return // Reduce says so
	}
	x := dsl.View[dsl.B128](t.X)
	t.eachChunk(e, func(from, n u32) {
		bytes := n.MulC(4)
		p.Fill(bytes, func(base u32) {
			e.K.If(e.Lane.EqC(0), func() { p.Copy(base, x, from.DivC(4), bytes) })
		})
	})
}

// eachElement drains this CTA's chunks; the consumer threads share a chunk's
// elements, four at a time.
func (t *Softmax) eachElement(e *grid.Env, c *pipeline.Consumer, r *pipeline.Ring, body func(at u32, x []f32)) {
	data := dsl.View[dsl.F32](r.Data)
	t.eachChunk(e, func(from, n u32) {
		c.Drain(func(base u32) {
			e.K.ForStep(e.Tid.MulC(4), n, 4*e.Threads(), func(i u32) {
				x := data.LoadN(base.MulC(4).Add(i), 4)
				for j := range x {
					x[j] = x[j].Mul(e.K.F32(math.Log2E / t.Temperature))
				}
				body(dsl.Optional(from.Add(i)), x) // Reduce has no use for the place
			})
		})
	})
}

// weight is 2^(x − top), and 0 for x = −inf, also where top is −inf: nothing has
// been seen yet. NaN stays NaN.
func weight(k *dsl.Kernel, x, top f32) f32 {
	return dsl.Select(x.Eq(k.F32(math.Inf(-1))), k.F32(0), dsl.Exp2(x.Sub(top)))
}

// state is a running maximum and the sum of weights relative to it.
type state struct{ top, sum *dsl.Var[dsl.F32] }

func newState(k *dsl.Kernel) state {
	return state{dsl.NewVar(k.F32(math.Inf(-1)), "top"), dsl.NewVar(k.F32(0), "sum")}
}

// add takes in a maximum and a sum: another state, or (x, 1) for an element.
func (s state) add(k *dsl.Kernel, top, sum f32) {
	old := s.top.Get()
	larger := old.Max(top)
	s.sum.Set(dsl.FMA(s.sum.Get(), weight(k, old, larger), sum.Mul(weight(k, top, larger))))
	s.top.Set(larger)
}

// Reduce runs in the consumer warps and leaves this CTA's maximum and sum in
// Partial. A sync must follow.
func (t *Softmax) Reduce(e *grid.Env, c *pipeline.Consumer, r *pipeline.Ring) {
	k := e.K
	if p := t.problem(r); p != "" {
		k.Require(false, "softmax: %s", p)
		return
	}
	s := newState(k)
	t.eachElement(e, c, r, func(_ u32, x []f32) {
		for _, v := range x {
			s.add(k, v, k.F32(1))
		}
	})
	for d := dsl.WarpSize / 2; d > 0; d /= 2 { // all lanes of a warp
		s.add(k, dsl.ShflXor(s.top.Get(), d), dsl.ShflXor(s.sum.Get(), d))
	}
	k.If(e.Lane.EqC(0), func() {
		t.Scratch.StoreN(e.Warp.MulC(2), []f32{s.top.Get(), s.sum.Get()})
	})
	e.Sync()
	k.If(e.Tid.EqC(0), func() { // all warps of the CTA
		all := newState(k)
		for w := range e.Consumers {
			v := t.Scratch.LoadN(dsl.At(2*w), 2)
			all.add(k, v[0], v[1])
		}
		t.Partial.StoreN(e.CTA.MulC(2), []f32{all.top.Get(), all.sum.Get()})
	})
}

// Write runs in the consumer warps after the sync and writes this CTA's
// share of P.
func (t *Softmax) Write(e *grid.Env, c *pipeline.Consumer, r *pipeline.Ring) {
	k := e.K
	if t.problem(r) != "" {
		return // Reduce has said so
	}
	s := newState(k)
	k.For(k.U32(0), k.U32(e.Grid), func(i u32) { // all CTAs, in the same order everywhere
		v := t.Partial.LoadN(i.MulC(2), 2)
		s.add(k, v[0], v[1])
	}, dsl.Unroll(1))
	top, scale := s.top.Get(), dsl.Rcp(s.sum.Get())
	t.eachElement(e, c, r, func(at u32, x []f32) {
		p := make([]f32, len(x))
		for j := range x {
			p[j] = dsl.Exp2(x[j].Sub(top)).Mul(scale)
		}
		t.P.StoreN(at, p)
	})
}

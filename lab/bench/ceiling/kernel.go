// Package ceiling measures the fastest that a GPU streams memory through a
// ring in shared memory: the yardstick for a decode step, whose work is to read
// weights and KV once. The kernel is built like any other, so that it can be
// executed and checked on the CPU.
package ceiling

import (
	"github.com/mkgen/mkgen/dsl"
	"github.com/mkgen/mkgen/dsl/ir"
)

// RingBytes is the shared memory of a CTA's ring, MinStageBytes the smallest
// stage and MaxStages how many of them there are.
const (
	RingBytes     = 192 << 10
	MinStageBytes = 8 << 10
	MaxStages     = RingBytes / MinStageBytes
)

const (
	sharedLimit = 232448 // what sm_90 offers a block
	element     = 16     // bytes of a B128
	warps       = 8      // all fill the buffer; one streams
)

// The scalars of the kernel. Units are elements of 16 bytes.
const (
	scalarFill      = "fill_units"  // not 0: write this many elements of data instead of streaming
	scalarStage     = "stage_units" // elements of a stage and of a chunk
	scalarStages    = "stages"      // stages of the ring, copies in flight
	scalarChunks    = "chunks"      // chunks each CTA streams
	scalarCTAStep   = "cta_step"    // elements from a CTA's first chunk to the next CTA's
	scalarChunkStep = "chunk_step"  // elements from a chunk of a CTA to its next
	scalarCheck     = "check"       // not 0: look at the first and last word of every chunk
)

const (
	bufferData = "data" // what is streamed
	bufferOut  = "out"  // [CTAs][2] chunks that have landed, sum of the words looked at
)

type u32 = dsl.Val[dsl.U32]

// Kernel builds the streaming kernel for a grid of sms CTAs, one an SM. One lane
// of each CTA copies chunk after chunk into the ring, each as soon as the copy
// that had its stage has landed, and counts those that have; no arithmetic is
// done on them. Called with fill_units it writes a pattern into data instead.
func Kernel(sms int) (*ir.Kernel, error) {
	k := dsl.New("stream_ceiling", dsl.Options{Warps: warps, Grid: sms, SharedLimit: sharedLimit,
		Doc: []string{"Streams a buffer through shared memory, to measure how fast that can be."}})
	data := dsl.Global[dsl.B128](k, bufferData, 0, dsl.Align(128), dsl.Doc("what is streamed"))
	s := &stream{k: k, data: data, words: dsl.View[dsl.U32](data),
		out: dsl.Global[dsl.U32](k, bufferOut, int64(2*sms),
			dsl.Doc("[CTAs][2] chunks that have landed, sum of the words looked at")),
		ring:  dsl.Shared[dsl.B128](k, "ring", RingBytes/element, dsl.Align(128)),
		full:  dsl.NewMBars(k, "full", MaxStages, dsl.Doc("a stage's copy has landed")),
		unit:  dsl.Scalar[dsl.U32](k, scalarStage, "16-byte elements of a stage"),
		depth: dsl.Scalar[dsl.U32](k, scalarStages, "stages of the ring"),
		n:     dsl.Scalar[dsl.U32](k, scalarChunks, "chunks a CTA streams"),
		step:  dsl.Scalar[dsl.U32](k, scalarChunkStep, "elements from a chunk to the CTA's next"),
		first: dsl.Scalar[dsl.U32](k, scalarCTAStep, "elements from a CTA's first chunk to the next CTA's"),
		check: dsl.Scalar[dsl.U32](k, scalarCheck, "look at the words that land"),
	}
	fill := dsl.Scalar[dsl.U32](k, scalarFill, "16-byte elements to write instead of streaming")
	k.IfElse(fill.NeC(0), func() { k.Region("fill", func() { Fill(k, s.words, fill, sms) }) }, func() {
		k.Region("stream", func() {
			k.Assert(s.unit.Mul(s.depth).LtC(RingBytes/element+1), "the stages do not fit the ring")
			k.If(k.Tid().EqC(0), func() {
				k.For(k.U32(0), s.depth, func(i u32) { s.full.Init(i, k.U32(1)) }, dsl.Unroll(1))
				k.FenceMBarInit()
				s.run()
			})
		})
	})
	return k.Finish()
}

// stream is what the kernel works on.
type stream struct {
	k           *dsl.Kernel
	data, ring  dsl.Buf[dsl.B128]
	words, out  dsl.Buf[dsl.U32]
	full        dsl.MBars
	unit, depth u32
	n, step     u32
	first       u32
	check       u32
}

// Fill writes the pattern to the first elements (of 16 bytes) of a buffer, all threads of
// a grid of n CTAs together.
func Fill(k *dsl.Kernel, words dsl.Buf[dsl.U32], elements u32, ctas int) {
	threads := k.Warps() * dsl.WarpSize
	from := k.CTA().MulC(threads).Add(k.Tid()).Named("from")
	k.ForStep(from, elements, ctas*threads, func(i u32) {
		at := i.MulC(4).Named("at")
		words.StoreN(at, []u32{pattern(at), pattern(at.AddC(1)), pattern(at.AddC(2)), pattern(at.AddC(3))})
	}, dsl.Unroll(4))
}

// pattern is the word at index i of data: as good as random, so that neither
// memory nor buses have it easier than with weights.
func pattern(i u32) u32 {
	h := i.MulC(patternFactor)
	return h.Xor(h.ShrC(patternShift))
}

const (
	patternFactor = 0x9e3779b1
	patternShift  = 15
)

// Word is the word that the fill writes at index i of the buffer.
func Word(i uint32) uint32 {
	h := i * patternFactor
	return h ^ h>>patternShift
}

// run copies the CTA's chunks, one thread. A fresh mbarrier counts as having
// completed a phase of parity 1: the first lap waits for nothing. After the last
// chunk one more lap waits for what is still in flight.
func (s *stream) run() {
	k := s.k
	slot, parity := dsl.NewVar(k.U32(0), "slot"), dsl.NewVar(k.U32(1), "parity")
	at := dsl.NewVar(k.CTA().Mul(s.first), "at")
	sum, landed := dsl.NewVar(k.U32(0), "sum"), dsl.NewVar(k.U32(0), "landed")
	bytes := s.unit.MulC(element).Named("bytes")
	k.For(k.U32(0), s.n.Add(s.depth), func(i u32) {
		stage := slot.Get()
		base := stage.Mul(s.unit).Named("base")
		s.full.Wait(stage, parity.Get())
		k.If(i.Ge(s.depth).And(i.Sub(s.depth).Lt(s.n)), func() {
			landed.Set(landed.Get().AddC(1))
			k.If(s.check.NeC(0), func() { s.look(base, sum) })
		})
		k.If(i.Lt(s.n), func() {
			s.full.ArriveExpect(stage, bytes)
			dsl.BulkCopy(s.ring, base, s.data, at.Get(), bytes, s.full, stage, dsl.CacheHint(dsl.EvictFirst))
			at.Set(at.Get().Add(s.step))
		})
		next := stage.AddC(1)
		wrap := next.Eq(s.depth)
		slot.Set(dsl.Select(wrap, k.U32(0), next))
		parity.Set(dsl.Select(wrap, parity.Get().XorC(1), parity.Get()))
	}, dsl.Unroll(1))
	s.out.StoreN(k.CTA().MulC(2), []u32{landed.Get(), sum.Get()})
}

// look adds the first and the last word of the stage at base to sum. The fence
// orders these reads before the copy that overwrites the stage.
func (s *stream) look(base u32, sum *dsl.Var[dsl.U32]) {
	words := dsl.View[dsl.U32](s.ring)
	first := words.Load(base.MulC(4))
	last := words.Load(base.Add(s.unit).MulC(4).SubC(1))
	sum.Set(sum.Get().Add(first).Add(last))
	s.k.FenceProxyAsyncShared()
}

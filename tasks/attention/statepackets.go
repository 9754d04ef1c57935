package attention

import (
	"encoding/binary"
	"math"

	"github.com/mkgen/mkgen/dsl"
	"github.com/mkgen/mkgen/tasks/grid"
)

// A packet of a partial state has two elements of the output, the state's log-sum-exp
// (base 2; −inf for an empty state, whose output is 0) and a flag.
type statePart struct{ lo, hi, lse f32 }

// StatePackets is the number of packets of a state of heads heads of d elements.
func StatePackets(heads, d int) int { return heads * d / 2 }

// StateLSE returns the log-sum-exp of each head of states of d elements, from their packets in
// memory.
func StateLSE(packets []byte, d int) []float32 {
	var lse []float32
	for at := 0; at < len(packets); at += 16 * d / 2 {
		lse = append(lse, math.Float32frombits(binary.LittleEndian.Uint32(packets[at+8:])))
	}
	return lse
}

// store writes a part of a state into packet at of b. Without l what reads it stands behind a sync.
func (p statePart) store(l *grid.LL, e *grid.Env, b dsl.Buf[dsl.B128], at u32) {
	bits := dsl.Bits[dsl.U32, dsl.F32]
	if l == nil {
		b.Store(at, dsl.Join(bits(p.lo), bits(p.hi), bits(p.lse), e.K.U32(0)))
		return
	}
	b.Store(at, dsl.Join(bits(p.lo), bits(p.hi), bits(p.lse), l.Flag()), dsl.Relaxed(dsl.GPUScope))
}

// partOf is what a packet of a state says.
func partOf(v dsl.Val[dsl.B128]) statePart {
	f := dsl.Split(v)
	return statePart{dsl.Bits[dsl.F32](f[0]), dsl.Bits[dsl.F32](f[1]), dsl.Optional(dsl.Bits[dsl.F32](f[2]))}
}

// parts reads parts of states that stand behind a sync, all in flight together.
func parts(b dsl.Buf[dsl.B128], at []u32) (list []statePart) {
	for _, i := range at {
		list = append(list, partOf(b.Load(i)))
	}
	return list
}

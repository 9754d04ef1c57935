package tasks

import (
	"encoding/binary"
	"math"

	"github.com/mkgen/mkgen/dsl"
	"github.com/mkgen/mkgen/pipeline"
)

// LL passes data between SMs in LL packets, as NCCL does: 16 bytes, data and a flag, in one access. A reader polls
// the packet until its flag is the running one. So neither a barrier nor a counter is needed: what is polled is the
// data. A reader uses all parts of a packet: of a load whose middle is not used ptxas makes two, which are not one
// access (docs/memory-model.md, "LL packets").
type LL struct {
	// Flag returns the running flag: the same in all SMs that write and read packets of one meaning, and another than
	// the packets had before. It changes with every sync that lies between two uses of a packet.
	Flag func() u32
	// Watch, unless nil, makes waits end when the launch is given up.
	Watch *pipeline.Watch
}

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

// store writes a part of a state. Without l what reads it stands behind a sync.
func (l *LL) store(e *Env, b dsl.Buf[dsl.B128], at u32, p statePart) {
	bits := dsl.Bits[dsl.U32, dsl.F32]
	if l == nil {
		b.Store(at, dsl.Join(bits(p.lo), bits(p.hi), bits(p.lse), e.K.U32(0)))
		return
	}
	b.Store(at, dsl.Join(bits(p.lo), bits(p.hi), bits(p.lse), l.Flag()), dsl.Relaxed(dsl.GPUScope))
}

// load waits for packet i of b; what says with %d for i what is waited for. A thread that needs several
// has them come one after another.
func (l *LL) load(e *Env, b dsl.Buf[dsl.B128], i u32, what string) dsl.Val[dsl.B128] {
	e.K.Note("a packet of 16 bytes: it is there when its last word is the flag")
	first := b.Load(i, dsl.Relaxed(dsl.GPUScope))
	return l.Watch.Tagged(e.K, b, i, first, l.Flag(), what)
}

// All waits for the packets at these places. All are loaded together; a thread that must wait for one
// looks for the others again when it has come.
func (l *LL) All(e *Env, b dsl.Buf[dsl.B128], at []u32, what string) (packets []dsl.Val[dsl.B128]) {
	k, flag := e.K, l.Flag().Named("flag")
	k.Note("packets of 16 bytes: each is there when its last word is the flag")
	var got []*dsl.Var[dsl.B128]
	for _, i := range at {
		got = append(got, dsl.NewVar(b.Load(i, dsl.Relaxed(dsl.GPUScope)), "packet"))
	}
	missing := func(i int) dsl.Pred { return dsl.Split(got[i].Get())[3].Ne(flag) }
	for i := range at {
		k.If(missing(i), func() {
			got[i].Set(l.Watch.Tagged(k, b, at[i], got[i].Get(), flag, what))
			for j := i + 1; j < len(at); j++ {
				k.If(missing(j), func() { got[j].Set(b.Load(at[j], dsl.Relaxed(dsl.GPUScope))) })
			}
		})
	}
	for _, v := range got {
		packets = append(packets, v.Get())
	}
	return packets
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

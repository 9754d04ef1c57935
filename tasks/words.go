package tasks

import (
	"encoding/binary"
	"math"

	"github.com/mkgen/mkgen/dsl"
	"github.com/mkgen/mkgen/pipeline"
)

// Words hands data on between SMs in words of 16 bytes that carry a tag: who needs one
// polls it until its tag is the running one, so that neither a barrier nor a counter is
// needed, and what is polled is the data. NCCL's LL protocols do the same. Who loads a word
// uses all its parts: of a load whose middle nobody uses ptxas makes two, which are not one
// access (docs/memory-model.md, "LL packets").
type Words struct {
	// Tag is the running tag: the same in all SMs that write and read words of one
	// meaning, and another than those words' from before; so it changes with every
	// sync that lies between two uses of a word.
	Tag func() u32
	// Watch, unless nil, makes waits end when the launch is given up.
	Watch *pipeline.Watch
}

// A word of a partial state has two elements of the output, the state's log-sum-exp
// (base 2; −inf for an empty state, whose output is 0) and a tag.
type statePart struct{ lo, hi, lse f32 }

// StateWords is the number of words of a state of heads heads of d elements.
func StateWords(heads, d int) int { return heads * d / 2 }

// StateLSE is the log-sum-exp of each head of states of d elements, of their words in
// memory.
func StateLSE(words []byte, d int) []float32 {
	var lse []float32
	for at := 0; at < len(words); at += 16 * d / 2 {
		lse = append(lse, math.Float32frombits(binary.LittleEndian.Uint32(words[at+8:])))
	}
	return lse
}

// store writes a part of a state. Without w what reads it stands behind a sync.
func (w *Words) store(e *Env, b dsl.Buf[dsl.B128], at u32, p statePart) {
	bits := dsl.Bits[dsl.U32, dsl.F32]
	if w == nil {
		b.Store(at, dsl.Join(bits(p.lo), bits(p.hi), bits(p.lse), e.K.U32(0)))
		return
	}
	b.Store(at, dsl.Join(bits(p.lo), bits(p.hi), bits(p.lse), w.Tag()), dsl.Relaxed(dsl.GPUScope))
}

// load is word i of b, as soon as its tag is the running one; what says with %d for i
// what is waited for. A thread that needs several has them come one after another.
func (w *Words) load(e *Env, b dsl.Buf[dsl.B128], i u32, what string) dsl.Val[dsl.B128] {
	first := b.Load(i, dsl.Relaxed(dsl.GPUScope))
	return w.Watch.Tagged(e.K, b, i, first, w.Tag(), what)
}

// All is the words at these places, once all have the running tag. All are loaded
// together; a thread that must wait for one looks for the others again when it has come.
func (w *Words) All(e *Env, b dsl.Buf[dsl.B128], at []u32, what string) (words []dsl.Val[dsl.B128]) {
	k, tag := e.K, w.Tag().Named("flag")
	k.Note("packets of 16 bytes: each is there when its last word is the flag")
	var got []*dsl.Var[dsl.B128]
	for _, i := range at {
		got = append(got, dsl.NewVar(b.Load(i, dsl.Relaxed(dsl.GPUScope)), "word"))
	}
	missing := func(i int) dsl.Pred { return dsl.Split(got[i].Get())[3].Ne(tag) }
	for i := range at {
		k.If(missing(i), func() {
			got[i].Set(w.Watch.Tagged(k, b, at[i], got[i].Get(), tag, what))
			for j := i + 1; j < len(at); j++ {
				k.If(missing(j), func() { got[j].Set(b.Load(at[j], dsl.Relaxed(dsl.GPUScope))) })
			}
		})
	}
	for _, v := range got {
		words = append(words, v.Get())
	}
	return words
}

// partOf is what a word of a state says.
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

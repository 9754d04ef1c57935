package megakernel

import (
	"github.com/mkgen/mkgen/dsl"
	"github.com/mkgen/mkgen/tasks/attention"
)

// Names of what a prefill kernel has where attention reads keys and values from a copy of a layer's: the copy, which
// pages have cached tokens and how many, and the number of these pages.
const (
	BufferKVCopy = "kv_copy"
	BufferKept   = "kept"
	ScalarKept   = "kept_count"
)

// copies is whether attention reads a layer's keys and values from a copy in bf16.
func (p *Prefill) copies() bool { return p.Of.KV.ScalesLen() > 0 }

// KVCopyBytes is the size of that copy for a cache of pages pages a layer; 0 where there is none.
func (p *Prefill) KVCopyBytes(pages int) int64 {
	if !p.copies() {
		return 0
	}
	l := (&attention.PrefillCopy{KV: p.Of.KV}).Layout()
	return int64(pages) * int64(l.PageBytes())
}

// declareCopy declares the copy, and has attention read it.
func (f *prefillFlow) declareCopy() {
	if !f.p.copies() {
		return
	}
	c, o, k := &f.mk.Config, &f.mk.Options, f.k
	f.bufs.scales = f.mk.declareScales(k)
	f.copy = &attention.PrefillCopy{KV: f.mk.KV,
		To: dsl.Global[dsl.B128](k, BufferKVCopy, 0, dsl.Align(128),
			bufDoc("[pages][%d KV heads][%d slots][K, V][%d] bf16 of the running layer, without scales", c.KVHeads, o.Page,
				c.HeadDim)),
		Kept: dsl.Global[dsl.U32](k, BufferKept, 0, dsl.ReadOnly(), dsl.Align(8),
			bufDoc("[%s][2] pages that have cached tokens, each once, and how many", ScalarKept))}
	f.att.OutputScale = f.copy.OutputScale
}

// keys is where attention reads keys and values.
func (f *prefillFlow) keys() dsl.Buf[dsl.B128] {
	if f.copy != nil {
		return f.copy.To
	}
	return f.bufs.kv
}

// reads is a layer's step as attention has it.
func (f *prefillFlow) reads(s attention.Step) attention.Step {
	s.Cache = f.keys()
	return s
}

package main

import (
	"encoding/binary"
	"fmt"
	"math"

	"github.com/mkgen/mkgen/dsl"
	"github.com/mkgen/mkgen/megakernel/attend"
	"github.com/mkgen/mkgen/tasks"
	"github.com/mkgen/mkgen/tests/gpu/attention/cases"
)

// build is the kernel of a case.
func build(c *cases.Case) (*program, error) {
	v := &variants{c: c, tables: map[string][]byte{}}
	config := attend.Config{Heads: c.Heads, KVHeads: c.KVHeads, HeadDim: c.HeadDim, Layers: c.Layers, Page: c.Page, Rows: max(1, c.T()),
		KV: tasks.KVType(c.KVType), Selection: c.Limits().Selection, Variants: v.make}
	mk, err := attend.Build(config)
	if err == nil {
		err = v.err
	}
	if err != nil {
		return nil, err
	}
	p := &program{IR: mk.IR, Limits: mk.Limits(0), Tables: v.tables,
		Scalars: func(pages, _, steps int) map[string]uint64 { return mk.Scalars(pages, steps) },
		KV:      attend.BufferCache, Q: attend.BufferQ, Out: attend.BufferOut, Rows: attend.BufferRows, Entries: attend.BufferEntries,
		Work: attend.BufferWork, Merge: attend.BufferMerges}
	if config.Selection {
		p.Positions = attend.BufferPositions
	}
	if n := c.Layout().ScalesLen(); n > 0 {
		p.Tables[attend.BufferScales] = ones(n)
	}
	return p, nil
}

// variants makes a case's variants and fills the buffers they read.
type variants struct {
	c      *cases.Case
	tables map[string][]byte
	err    error
}

func (v *variants) make(k *dsl.Kernel) []*tasks.Variant {
	var list []*tasks.Variant
	for i := range v.c.Variants {
		one, err := v.one(k, i, &v.c.Variants[i].Params)
		if err != nil {
			v.err = fmt.Errorf("variant %s: %w", v.c.Variants[i].Name, err)
		}
		list = append(list, one)
	}
	return list
}

// one is variant i, its parts in the order that cases.Params gives them.
func (v *variants) one(k *dsl.Kernel, i int, p *cases.Params) (*tasks.Variant, error) {
	floats := func(name string, values []float32) dsl.Buf[dsl.F32] {
		name = fmt.Sprintf("%s_%d", name, i)
		v.tables[name] = nil
		for _, x := range values {
			v.tables[name] = binary.LittleEndian.AppendUint32(v.tables[name], math.Float32bits(x))
		}
		return dsl.Global[dsl.F32](k, name, int64(len(values)), dsl.ReadOnly())
	}
	var parts []*tasks.Variant
	if p.Rope != nil {
		parts = append(parts, tasks.StreamingRoPE(p.Window, p.Sinks, floats("inv_freq", p.Rope.InvFreq), p.Rope.InvFreq))
	}
	if p.HeadScale != nil {
		parts = append(parts, tasks.HeadScale(floats("head_scale", p.HeadScale), p.HeadScale))
	}
	if p.SoftCap > 0 {
		parts = append(parts, tasks.SoftCap(p.SoftCap))
	}
	if p.ALiBi != nil {
		parts = append(parts, tasks.ALiBi(floats("slopes", p.ALiBi), p.ALiBi))
	}
	if p.Window > 0 && p.Rope == nil {
		parts = append(parts, tasks.SlidingWindow(p.Window, p.Sinks))
	}
	if p.Mask {
		words := v.c.Mask()
		name := fmt.Sprintf("mask_%d", i)
		for _, w := range words {
			v.tables[name] = binary.LittleEndian.AppendUint32(v.tables[name], w)
		}
		parts = append(parts, tasks.CustomMask(dsl.Global[dsl.U32](k, name, int64(len(words)), dsl.ReadOnly()), nil))
	}
	if p.Sigmoid != nil {
		parts = append(parts, tasks.Sigmoid(p.Sigmoid.Bias))
	}
	switch len(parts) {
	case 0:
		return nil, nil
	case 1:
		return parts[0], nil
	}
	return tasks.Combine(parts...)
}

// ones is n times 1 as f32.
func ones(n int) (data []byte) {
	for range n {
		data = binary.LittleEndian.AppendUint32(data, math.Float32bits(1))
	}
	return data
}

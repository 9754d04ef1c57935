package main

import (
	"fmt"

	"github.com/mkgen/mkgen/dsl"
	"github.com/mkgen/mkgen/lab/attend"
	"github.com/mkgen/mkgen/tasks/attention"
	"github.com/mkgen/mkgen/tests/gpu/attention/cases"
)

// build is the kernel of a case; change, unless nil, sees its options before.
func build(c *cases.Case, change func(*attend.Config)) (*program, error) {
	p := &program{Tables: map[string][]byte{}}
	config := attend.Config{Heads: c.Heads, KVHeads: c.KVHeads, HeadDim: c.HeadDim, Layers: c.Layers, Page: c.Page,
		Rows: c.T(), KV: attention.KVType(c.KVType), Selection: c.Limits().Selection}
	var refused error
	config.Variants = func(k *dsl.Kernel) (list []*attention.Variant) {
		for _, v := range c.Variants {
			made, err := variant(k, c, v.Params, p.Tables)
			if err != nil {
				refused = fmt.Errorf("variant %s: %w", v.Name, err)
			}
			list = append(list, made)
		}
		return list
	}
	if change != nil {
		change(&config)
	}
	mk, err := attend.Build(config)
	if err != nil {
		return nil, err
	}
	p.IR, p.Limits, p.Classes, p.Scalars, p.Traced, p.Stages = mk.IR, mk.Limits(c.Pages), mk.Classes(), mk.Scalars,
		mk.Traced, mk.Plan.Stages
	return p, refused
}

// variant declares a variant's buffers, notes their content, and makes it; nil is
// plain attention. Of what Params can say only one thing can be had at a time, but
// for a window under a rotation.
func variant(k *dsl.Kernel, c *cases.Case, p cases.Params, tables map[string][]byte) (*attention.Variant, error) {
	floats := func(name string, values []float32) dsl.Buf[dsl.F32] {
		tables[name] = floatWords(values)
		return dsl.Global[dsl.F32](k, name, int64(len(values)), dsl.ReadOnly(), dsl.Doc("of the variant"))
	}
	var made []*attention.Variant
	add := func(v *attention.Variant) { made = append(made, v) }
	if p.Rope != nil {
		add(attention.StreamingRoPE(p.Window, p.Sinks, floats("inv_freq", p.Rope.InvFreq), p.Rope.InvFreq))
	} else if p.Window > 0 {
		add(attention.SlidingWindow(p.Window, p.Sinks))
	}
	if p.SoftCap != 0 {
		add(attention.SoftCap(p.SoftCap))
	}
	if p.ALiBi != nil {
		add(attention.ALiBi(floats("slopes", p.ALiBi), p.ALiBi))
	}
	if p.Mask {
		mask := c.Mask()
		tables["mask"] = words(mask)
		add(attention.CustomMask(dsl.Global[dsl.U32](k, "mask", int64(len(mask)), dsl.ReadOnly(),
			dsl.Doc("bits of the custom mask")), nil))
	}
	if p.Sigmoid != nil {
		add(attention.Sigmoid(p.Sigmoid.Bias))
	}
	if p.HeadScale != nil {
		add(attention.HeadScale(floats("head_scale", p.HeadScale), p.HeadScale))
	}
	switch len(made) {
	case 0:
		return nil, nil
	case 1:
		return made[0], nil
	}
	return nil, fmt.Errorf("%d things at a time, want one", len(made))
}

package megakernel

import (
	"cmp"
	"slices"

	"github.com/mkgen/mkgen/dsl"
	"github.com/mkgen/mkgen/kv"
	"github.com/mkgen/mkgen/tasks/attention"
)

// Names of the buffers of attention that is not plain. Each is there only where some
// layer's needs it.
const (
	BufferSlopes     = "alibi_slopes" // [Heads] f32: the table of that name
	BufferHeadScales = "head_scales"  // [Heads] f32: a query head's factor, the same in all layers
	BufferMask       = "mask_bits"    // u32, as many as the host likes: see attention.CustomMask
)

// hooked is what variants read.
type hooked struct {
	slopes, headScales dsl.Buf[dsl.F32]
	mask               dsl.Buf[dsl.U32]
}

// has is whether some layer's attention has a term.
func (mk *Kernel) has(term string) bool {
	return slices.ContainsFunc(mk.specs, func(s attentionSpec) bool { return s.has(term) })
}

func (mk *Kernel) declareHooked(k *dsl.Kernel, b *buffers) {
	heads, ro := int64(mk.Config.Heads), dsl.ReadOnly()
	if mk.has(termALiBi) {
		b.slopes = dsl.Global[dsl.F32](k, BufferSlopes, heads, ro, bufDoc("[%d] ALiBi, of each query head", heads))
	}
	if mk.has(termHeadScale) {
		b.headScales = dsl.Global[dsl.F32](k, BufferHeadScales, heads, ro,
			bufDoc("[%d] factor of each head's queries", heads))
	}
	if mk.has(termMask) {
		b.mask = dsl.Global[dsl.U32](k, BufferMask, 0, ro,
			bufDoc("bit i%%32 of a row's word i/32: it sees the i-th token of its sequence"))
	}
}

// instantiate makes the classes' variants of the kernel's buffers.
func (mk *Kernel) instantiate(b *buffers) {
	for i, s := range mk.specs {
		mk.classes[i] = mk.variant(s, b, Tables{})
	}
}

// Tables are what a host chose to put into the buffers of attention's variants.
type Tables struct {
	HeadScales []float32 // BufferHeadScales; nil for the kernel's own, 1 for all
	// what BufferMask says: whether a token row sees the key at a place in its sequence
	Visible func(row, index int) bool
}

// LayerAttention is the attention of a layer, to compute with in float64 (Attend);
// nil is plain attention. Its hooks that emit code belong to the kernel.
func (mk *Kernel) LayerAttention(layer int, t Tables) *attention.Variant {
	return mk.variant(mk.specs[mk.pattern[layer%len(mk.pattern)]], &buffers{}, t)
}

// Unrotated is whether a layer's keys are cached without their rotary embedding,
// which they then get as they are read.
func (mk *Kernel) Unrotated(layer int) bool {
	return mk.specs[mk.pattern[layer%len(mk.pattern)]].has(termStreaming)
}

// variant makes what a class's terms say; nil for plain attention.
func (mk *Kernel) variant(s attentionSpec, b *buffers, t Tables) *attention.Variant {
	return mk.windowed(s, b, t, attention.SlidingWindow)
}

// windowed is variant, whose sliding windows are what slides makes.
func (mk *Kernel) windowed(s attentionSpec, b *buffers, t Tables,
	slides func(window, sinks int) *attention.Variant) *attention.Variant {
	var parts []*attention.Variant
	add := func(v *attention.Variant) { parts = append(parts, v) }
	window, sinks := s.window()
	for _, term := range s {
		switch term.name {
		case termHeadScale:
			if t.HeadScales == nil {
				t.HeadScales = mk.HeadScales()
			}
			add(attention.HeadScale(b.headScales, t.HeadScales))
		case termStreaming:
			add(attention.StreamingRoPE(window, sinks, b.invFreq, mk.InvFreq()))
		case termWindow:
			add(slides(window, sinks))
		case termSinks: // the window's
		case termMask:
			add(attention.CustomMask(b.mask, t.Visible))
		case termSoftCap:
			add(attention.SoftCap(term.value))
		case termALiBi:
			add(attention.ALiBi(b.slopes, attention.ALiBiSlopes(mk.Config.Heads)))
		case termSigmoid:
			add(attention.Sigmoid(term.value))
		default:
			panic("BUG: term " + term.name)
		}
	}
	switch len(parts) {
	case 0:
		return nil
	case 1:
		return parts[0]
	}
	v, err := attention.Combine(parts...)
	if err != nil {
		panic("BUG: " + err.Error())
	}
	return v
}

// HeadScales are the factors of query heads that a kernel with them has unless it is
// given others: 1 for all.
func (mk *Kernel) HeadScales() []float32 { return slices.Repeat([]float32{1}, mk.Config.Heads) }

// HasHeadScales is whether queries have a factor for each head.
func (mk *Kernel) HasHeadScales() bool { return mk.has(termHeadScale) }

// HasMask is whether there is a buffer of mask bits, which the host fills.
func (mk *Kernel) HasMask() bool { return mk.has(termMask) }

// SumsOnly is whether no layer's attention divides by a sum of weights, so that states of
// splits are added and none has a share of its own.
func (mk *Kernel) SumsOnly() bool {
	return len(mk.specs) > 0 && !slices.ContainsFunc(mk.specs, func(s attentionSpec) bool { return !s.has(termSigmoid) })
}

// Slopes are the contents of BufferSlopes; nothing where there is none.
func (mk *Kernel) Slopes() []float32 {
	if !mk.has(termALiBi) {
		return nil
	}
	return attention.ALiBiSlopes(mk.Config.Heads)
}

// Classes is what a planner of attention work is told of the classes of layers.
func (mk *Kernel) Classes() []kv.Class {
	out := make([]kv.Class, len(mk.specs))
	for i, s := range mk.specs {
		window, sinks := s.window()
		out[i] = kv.Class{Window: window, Sinks: sinks, Select: mk.Options.Selection && window == 0}
	}
	return out
}

// eachClass calls body for the class of the step's layer: for all of them, each
// where the layer is of that class.
func (b *builder) eachClass(s attention.Step, body func(class int)) {
	name := func(class int) string { return "layers of " + b.mk.specs[class].String() }
	attention.Turns(b.mk.pattern).Each(b.k, s.Layer, name, body)
}

// layerAttention returns the variants of attention that a kernel of one row has code for: those of the classes, or one
// where the classes differ in their windows only. each calls body with the number of the variant of the step's layer.
func (f *single) layerAttention() (vs []*attention.Variant, each func(s attention.Step, body func(i int))) {
	specs := f.mk.specs
	i := slices.IndexFunc(specs, func(s attentionSpec) bool { return s.has(termWindow) })
	if len(specs) == 1 || i < 0 || slices.ContainsFunc(specs, func(s attentionSpec) bool {
		return s.has(termStreaming) || s.has(termSinks) || !slices.Equal(s.without(termWindow), specs[i].without(termWindow))
	}) {
		return f.mk.classes, f.eachClass
	}
	window := func(s attention.Step) dsl.Val[dsl.U32] {
		return f.ofClass(s, func(s attentionSpec) int {
			return cmp.Or(s.whole(termWindow), maxWindow) // no context is longer
		})
	}
	v := f.mk.windowed(specs[i], f.bufs, Tables{},
		func(_, _ int) *attention.Variant { return attention.LayerWindows(window, maxWindow) })
	return []*attention.Variant{v}, func(_ attention.Step, body func(i int)) { body(0) }
}

// ofClass is number of the class of the step's layer.
func (b *builder) ofClass(s attention.Step, number func(s attentionSpec) int) dsl.Val[dsl.U32] {
	v := b.k.U32(number(b.mk.specs[0]))
	for class := 1; class < len(b.mk.specs); class++ {
		v = dsl.Select(attention.Turns(b.mk.pattern).Is(b.k, s.Layer, class), b.k.U32(number(b.mk.specs[class])), v)
	}
	return v
}

// rotatedFor is the position that a layer's queries and keys are rotated for before
// keys are cached: nil where that is always their own. Turned by nothing they stay as
// they are, bit by bit.
func (b *builder) rotatedFor() func(s attention.Step, pos dsl.Val[dsl.U32]) dsl.Val[dsl.U32] {
	if !b.mk.has(termStreaming) {
		return nil
	}
	return func(s attention.Step, pos dsl.Val[dsl.U32]) dsl.Val[dsl.U32] {
		zero := b.k.U32(0)
		for class, spec := range b.mk.specs {
			switch {
			case !spec.has(termStreaming):
			case len(b.mk.specs) == 1:
				return zero
			default:
				pos = dsl.Select(attention.Turns(b.mk.pattern).Is(b.k, s.Layer, class), zero, pos)
			}
		}
		return pos
	}
}

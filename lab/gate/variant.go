package gate

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/mkgen/mkgen/kv"
	"github.com/mkgen/mkgen/megakernel"
	"github.com/mkgen/mkgen/models/synth"
	"github.com/mkgen/mkgen/pipeline"
)

// Variant is the attention of a reference, as tests/gpu/variants.py computes it; zero is plain attention.
type Variant struct {
	Attention string `json:"attention"` // as Options.Attention has it
	KV        string `json:"kv"`        // format of the cache that o and h have, too; empty: bf16
	Selection int    `json:"selection"` // tokens of the pages that KV heads select; 0: all are seen
}

// judges refuses a kernel whose attention, cache or inputs of products, which are rounded as for weights of a format,
// are others than the reference's.
func (r *Reference) judges(mk *megakernel.Kernel, inputs pipeline.Format) error {
	o, page := &mk.Options, 0
	if o.Selection {
		page = mk.KV.Page
	}
	ours := cmp.Or(string(o.KV), "bf16")
	for _, f := range []struct{ what, theirs, ours string }{
		{"format of the KV cache", r.Roundings.KV, ours}, {"format of the KV cache", cmp.Or(r.Variant.KV, "bf16"), ours},
		{"attention", cmp.Or(r.Variant.Attention, mk.OwnAttention(), "causal"), cmp.Or(o.Attention, "causal")},
		{"format of the LM head", cmp.Or(r.HeadFormat, "bf16"), cmp.Or(string(o.Head), "bf16")},
		{"rounding of inputs in s", cmp.Or(r.Roundings.Inputs, r.WeightFormat, "bf16"), cmp.Or(string(inputs), "bf16")},
		{"page of selections", fmt.Sprint(r.Variant.Selection), fmt.Sprint(page)},
	} {
		if f.theirs != f.ours {
			return &MismatchError{f.what, f.theirs, f.ours}
		}
	}
	return nil
}

// AttentionChanged is the fault of a kernel with another attention than plain: each window a token wider, no soft cap,
// another bias of the sigmoid, one head's ALiBi slope half as large again; or of what the host says: each row has the
// mask of the row after it, the first KV head sees the pages that the second should.
const AttentionChanged = "attention_changed"

// Faults of what models have beyond Llama, each planted where the model has it.
const (
	BiasDropped     = "bias_dropped"       // biases are left out
	QKNormSkipped   = "qk_norm_skipped"    // keys get the gains of their norm, and no more
	PlusOneDropped  = "plus_one_dropped"   // gains are taken for 1 + gain
	RopeBaseSwapped = "rope_base_swapped"  // all layers are rotated as the first one is
	LogitCapLeftOut = "logit_cap_left_out" // logits are not capped
	PostNormSkipped = "post_norm_skipped"  // what attention adds gets the gains of its norm, and no more
	GrowthLeftOut   = "growth_left_out"    // scores do not grow with the position
	WindowWider     = "window_wider"       // windows are a token wider, where AttentionChanged leaves soft caps out, too
)

// featureFaults are their names by the kernel's.
func featureFaults() map[megakernel.Fault]string {
	names := map[megakernel.Fault]string{}
	for name, fault := range inKernel {
		names[fault] = name
	}
	return names
}

// faults lists those that a judgement of mk plants: without AttentionChanged where its attention is plain, without
// MergeWeightWrong where no weights are merged, and with those of the model's features and of the format of weights.
func faults(mk *megakernel.Kernel) (names []string) {
	for _, name := range Faults() {
		if name != MergeWeightWrong || !mk.SumsOnly() {
			names = append(names, name)
		}
	}
	if mk.Options.Attention != "" || mk.Options.Selection {
		names = append(names, AttentionChanged)
	}
	for _, fault := range mk.FeatureFaults() {
		if fault != megakernel.FaultAttention {
			names = append(names, featureFaults()[fault])
		}
	}
	return append(names, formatFaults(mk)...)
}

// drawn is the generator's word i of the stream with that name, as draw of tests/gpu/variants.py.
func drawn(seed uint64, name string, i uint32) uint32 {
	k0, k1 := synth.Key(seed, name)
	return scramble(scramble(i^k0) + k1)
}

// maskedPositions bounds the positions of sequences under a mask.
const maskedPositions = 1 << 15

// maskWords are the bits by which row sees the keys up to its own position: one in eight is hidden, never its own.
func (r *Reference) maskWords(sequence, row int) []uint32 {
	words := make([]uint32, row/32+1)
	name := fmt.Sprintf("mask.%d", sequence)
	for key := range row + 1 {
		if key == row || drawn(r.Seed, name, uint32(row*maskedPositions+key))&7 != 0 {
			words[key/32] |= 1 << (key % 32)
		}
	}
	return words
}

// selected are the full pages below pages that a KV head sees: one in two.
func (r *Reference) selected(sequence, head, pages int) []int {
	list, name := []int{}, fmt.Sprintf("selection.%d", sequence)
	for page := range pages {
		if drawn(r.Seed, name, uint32(head<<20+page))&1 == 1 {
			list = append(list, page)
		}
	}
	return list
}

// attends adds to a sequence's part of a step what the reference's variant says of it; words are the mask bits of the
// step so far. changed plants AttentionChanged.
func (p *raggedPass) attends(q *kv.Sequence, part Part, words []uint32) []uint32 {
	mk := p.s.Kernel
	if mk.Options.Selection {
		for head := range mk.Config.KVHeads {
			if p.fault == AttentionChanged && head == 0 {
				head = 1 % mk.Config.KVHeads
			}
			q.Select = append(q.Select, p.ref.selected(part.Sequence, head, part.From/mk.KV.Page))
		}
	}
	if mk.HasMask() {
		for row := part.From; row < part.To; row++ {
			q.Masks = append(q.Masks, uint32(len(words)))
			of := p.ref.maskWords(part.Sequence, row)
			if p.fault == AttentionChanged {
				of = slices.Clone(p.ref.maskWords(part.Sequence, row+1)[:len(of)])
			}
			words = append(words, of...)
		}
	}
	return words
}

// faults lists those that are planted.
func (s *RaggedSubject) faults() []string {
	names := slices.DeleteFunc(faults(s.Kernel),
		func(name string) bool {
			return s.Prefill && (name == BytesExchanged || name == MergeWeightWrong && (s.Merges == nil || !s.Merges()))
		})
	if s.Inputs == TokenE4M3 {
		names = append(names, TokenScaleOfNeighbour)
	}
	return names
}

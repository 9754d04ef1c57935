package addresses

import (
	"github.com/mkgen/mkgen/dsl/ir"
	"github.com/mkgen/mkgen/dsl/ir/bounds"
	"github.com/mkgen/mkgen/megakernel"
	"github.com/mkgen/mkgen/tasks/attention"
)

// CheckPrefill analyses a prefill kernel, or k, a variant of it.
func CheckPrefill(p *megakernel.Prefill, k *ir.Kernel, positions int) *bounds.Report {
	return bounds.Analyze(k, prefillFacts(p, positions))
}

// prefillFacts is what holds in every launch of a prefill kernel: see runtime.Prefill.Run.
func prefillFacts(p *megakernel.Prefill, positions int) *bounds.Facts {
	f := sequenceFacts(p, positions)
	if p.Options.Sequences > 1 {
		f = sequencesFacts(p, positions)
	}
	f.Params[megakernel.ScalarPartBlocks] = bounds.Range{Lo: 1, Hi: attention.OnePart}
	if n := p.KVCopyBytes(1); n > 0 {
		most := int64(p.Options.Sequences) * int64(entries(p.Of, positions))
		f.Params[megakernel.ScalarKept] = bounds.Range{Lo: 0, Hi: most}
		f.Lens[megakernel.BufferKVCopy] = bounds.Times(n/16, megakernel.ScalarPages, 0)
		f.Lens[megakernel.BufferKept] = bounds.Times(2, megakernel.ScalarKept, 0)
		f.Content[megakernel.BufferKept] = &bounds.Content{Stride: 2, Words: map[int]bounds.Word{
			0: {Hi: bounds.Times(1, megakernel.ScalarPages, -1)},
			1: {Lo: bounds.Number(1), Hi: bounds.Number(int64(p.Of.KV.Page))}}}
	}
	return f
}

// sequenceFacts is prefillFacts of a kernel of one sequence.
func sequenceFacts(p *megakernel.Prefill, positions int) *bounds.Facts {
	mk, page := p.Of, int64(p.Of.Options.Page)
	table := bounds.Linear{Terms: map[string]int64{megakernel.ScalarPos: 1, megakernel.ScalarRows: 1, ParamEntries: -page}}
	return &bounds.Facts{
		Params: map[string]bounds.Range{
			megakernel.ScalarPages: {Lo: 1, Hi: manySequences * int64(entries(mk, positions))},
			megakernel.ScalarPos:   {Lo: 0, Hi: int64(positions) - 1},
			megakernel.ScalarRows:  {Lo: 1, Hi: int64(p.Options.Tokens)},
			ParamEntries:           {Lo: 1, Hi: int64(entries(mk, positions))},
		},
		AtMost: []bounds.Linear{table},
		Lens: map[string]bounds.Linear{
			"kv":                          cacheLen(mk),
			megakernel.BufferPrefillTable: bounds.Times(1, ParamEntries, 0),
		},
		Content: map[string]*bounds.Content{
			megakernel.BufferPrefillTable: pages(),
			megakernel.BufferPrompt:       {Stride: 1, Words: map[int]bounds.Word{0: below(mk.Config.Vocab)}},
		},
	}
}

// sequencesFacts is prefillFacts of a kernel of several sequences: see runtime.Prefill.RunAll.
func sequencesFacts(p *megakernel.Prefill, positions int) *bounds.Facts {
	mk, page, n := p.Of, int64(p.Of.Options.Page), int64(p.Options.Sequences)
	all := n * int64(entries(mk, positions))
	return &bounds.Facts{
		Params: map[string]bounds.Range{
			megakernel.ScalarPages:     {Lo: 1, Hi: manySequences * int64(entries(mk, positions))},
			megakernel.ScalarSequences: {Lo: 1, Hi: n},
			megakernel.ScalarRows:      {Lo: 1, Hi: int64(p.Options.Tokens)},
			ParamEntries:               {Lo: 1, Hi: all},
		},
		Lens: map[string]bounds.Linear{
			"kv":                          cacheLen(mk),
			megakernel.BufferPrefillTable: bounds.Times(1, ParamEntries, 0),
		},
		Content: map[string]*bounds.Content{
			megakernel.BufferPrefillTable: pages(),
			megakernel.BufferPrompt:       {Stride: 1, Words: map[int]bounds.Word{0: below(mk.Config.Vocab)}},
			megakernel.BufferPrefillRows: {Stride: 2, Words: map[int]bounds.Word{0: below(positions),
				1: {Hi: bounds.Times(1, megakernel.ScalarPages, -1)}}},
			megakernel.BufferPrefillSequences: {Stride: megakernel.PrefillSequenceWords, Words: map[int]bounds.Word{
				megakernel.PrefillFirst:    {Hi: bounds.Times(1, megakernel.ScalarRows, -1)},
				megakernel.PrefillCount:    {Lo: bounds.Number(1), Hi: bounds.Times(1, megakernel.ScalarRows, 0)},
				megakernel.PrefillPosition: below(positions),
				megakernel.PrefillEntry:    {Hi: bounds.Times(1, ParamEntries, -1)},
			}, Relations: []bounds.Relation{
				{Unless: always, Words: map[int]int64{megakernel.PrefillFirst: 1, megakernel.PrefillCount: 1},
					Plus: bounds.Times(-1, megakernel.ScalarRows, 0)},
				{Unless: always, Words: map[int]int64{megakernel.PrefillEntry: page, megakernel.PrefillPosition: 1,
					megakernel.PrefillCount: 1}, Plus: bounds.Times(-page, ParamEntries, 0)},
			}},
		},
	}
}

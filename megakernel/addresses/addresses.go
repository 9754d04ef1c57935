// Package addresses proves that no address of a model's kernels can overflow or leave its
// buffer, at the model's real sizes.
package addresses

import (
	"github.com/mkgen/mkgen/dsl/ir"
	"github.com/mkgen/mkgen/dsl/ir/bounds"
	"github.com/mkgen/mkgen/megakernel"
)

// Positions is how long a sequence is that kernels are proved for.
const Positions = 1 << 20

// Parameters of Facts beside the kernels' scalars.
const (
	ParamEntries = "page table entries" // of a sequence, or of all units of a launch of several rows
	ParamMask    = "mask words"
)

// Facts is what holds in every launch of mk's kernels with sequences of up to positions
// positions: what a session checks, what a plan says, and how long buffers are that the
// host sizes. A cache may have several times the pages that a sequence needs.
func Facts(mk *megakernel.Kernel, positions int) *bounds.Facts {
	table := mk.PlanTable()
	f := &bounds.Facts{
		Params: map[string]bounds.Range{
			megakernel.ScalarPages: {Lo: 1, Hi: manySequences * int64(entries(mk, positions))},
			megakernel.ScalarSteps: {Lo: 1, Hi: int64(positions)},
		},
		Lens: map[string]bounds.Linear{"kv": cacheLen(mk)},
		Content: map[string]*bounds.Content{"plan": {Table: &bounds.Table{Stride: len(table) / mk.Options.SMs,
			Words: table}}},
	}
	if mk.Ragged() {
		planned(f, mk, positions)
	} else {
		sequence(f, mk, positions)
	}
	return f
}

// manySequences is how many sequences of the most positions a cache has pages for.
const manySequences = 16

// cacheLen is the length of the KV cache, in elements of 16 bytes.
func cacheLen(mk *megakernel.Kernel) bounds.Linear {
	return bounds.Times(int64(mk.Config.Layers)*int64(mk.KV.PageBytes())/16, megakernel.ScalarPages, 0)
}

// entries is how many pages a sequence takes.
func entries(mk *megakernel.Kernel, positions int) int {
	return (positions + mk.Options.Page - 1) / mk.Options.Page
}

// pages is what a page table holds.
func pages() *bounds.Content {
	return &bounds.Content{Stride: 1, Words: map[int]bounds.Word{0: {Hi: bounds.Times(1, megakernel.ScalarPages, -1)}}}
}

// sequence is of launches of one sequence: see runtime.Sequence.
func sequence(f *bounds.Facts, mk *megakernel.Kernel, positions int) {
	page := int64(mk.Options.Page)
	f.Params[ParamEntries] = bounds.Range{Lo: 1, Hi: int64(entries(mk, positions))}
	f.Params[megakernel.ScalarPos] = bounds.Range{Lo: 0, Hi: int64(positions) - 1}
	f.Params[megakernel.ScalarKnown] = bounds.Range{Lo: 1, Hi: int64(positions)}
	f.AtMost = append(f.AtMost,
		bounds.Linear{Terms: map[string]int64{megakernel.ScalarPos: 1, megakernel.ScalarSteps: 1, ParamEntries: -page}})
	f.Lens["page_table"] = bounds.Times(1, ParamEntries, 0)
	for _, name := range []string{"tokens", "stream", "times"} {
		f.Lens[name] = bounds.Times(page, ParamEntries, 1)
	}
	f.Content["page_table"] = pages()
	if mk.Graph != nil {
		f.Params[megakernel.ScalarLayer] = bounds.Range{Lo: 0, Hi: int64(mk.Config.Layers) - 1}
		f.Content[megakernel.BufferState] = &bounds.Content{Stride: megakernel.StateWords, Words: map[int]bounds.Word{
			0: {Hi: bounds.Times(page, ParamEntries, -1)}, 1: {Hi: bounds.Times(page, ParamEntries, 0)}}}
	}
}

// Check analyses one of mk's kernels.
func Check(mk *megakernel.Kernel, k *ir.Kernel, positions int) *bounds.Report {
	return bounds.Analyze(k, Facts(mk, positions))
}

// Prove analyses all of mk's kernels, one after another: of a graph's each.
func Prove(mk *megakernel.Kernel, positions int) *bounds.Report {
	kernels := []*ir.Kernel{mk.IR}
	if mk.Graph != nil {
		kernels = mk.Graph.Kernels
	}
	all := &bounds.Report{}
	for _, k := range kernels {
		r := Check(mk, k, positions)
		all.Accesses += r.Accesses
		all.Values += r.Values
		all.Findings = append(all.Findings, r.Findings...)
	}
	return all
}

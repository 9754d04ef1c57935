// Package addresses proves that no address of a model's kernels can overflow or leave its
// buffer, at the model's real sizes.
package addresses

import (
	"github.com/mkgen/mkgen/dsl/ir"
	"github.com/mkgen/mkgen/dsl/ir/bounds"
	"github.com/mkgen/mkgen/megakernel"
)

// Names of what Facts says beside the kernels' scalars.
const (
	paramEntries = "page_table entries" // entries of a sequence's page table
)

// Facts is what holds in every launch of mk's kernels with sequences of up to positions
// positions.
func Facts(mk *megakernel.Kernel, positions int) *bounds.Facts {
	o, page := &mk.Options, int64(mk.Options.Page)
	entries := (int64(positions) + page - 1) / page
	f := &bounds.Facts{
		Params: map[string]bounds.Range{
			megakernel.ScalarPages: {Lo: 1, Hi: 16 * entries},
			megakernel.ScalarSteps: {Lo: 1, Hi: int64(positions)},
			paramEntries:           {Lo: 1, Hi: entries},
		},
		Lens:    map[string]bounds.Linear{"kv": bounds.Times(int64(mk.Config.Layers)*int64(mk.KV.PageBytes())/16, megakernel.ScalarPages, 0)},
		Content: map[string]*bounds.Content{"plan": {Table: &bounds.Table{Stride: len(mk.PlanTable()) / o.SMs, Words: mk.PlanTable()}}},
	}
	f.Params[megakernel.ScalarPos] = bounds.Range{Lo: 0, Hi: int64(positions) - 1}
	f.Params[megakernel.ScalarKnown] = bounds.Range{Lo: 1, Hi: int64(positions)}
	f.AtMost = append(f.AtMost, bounds.Linear{Terms: map[string]int64{megakernel.ScalarPos: 1, megakernel.ScalarSteps: 1, paramEntries: -page}})
	f.Lens["page_table"] = bounds.Times(1, paramEntries, 0)
	for _, name := range []string{"tokens", "stream", "times"} {
		f.Lens[name] = bounds.Times(page, paramEntries, 1)
	}
	f.Content["page_table"] = &bounds.Content{Stride: 1, Words: map[int]bounds.Word{0: {Lo: bounds.Number(0), Hi: bounds.Times(1, megakernel.ScalarPages, -1)}}}
	return f
}

// Positions is how long a sequence is that kernels are proved for.
const Positions = 1 << 20

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

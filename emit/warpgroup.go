package emit

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/mkgen/mkgen/dsl/ir"
)

// groupHelpers are for warpgroups, clusters and tensor maps.
var groupHelpers = [...]fixedHelper{
	{"tile", 1, "shared_address", `
// The descriptor of a wgmma operand at a place in shared memory.
template <u64 layout>
DEVICE u64 tile(const void* p) { return layout | (shared_address(p) >> 4 & 0x3fff); }`},
	{"wgmma_fence", 1, "", `
// Orders this warp's accesses to registers before its wgmmas.
DEVICE void wgmma_fence() { asm volatile("wgmma.fence.sync.aligned;" : : : "memory"); }`},
	{"wgmma_commit", 1, "", `
// Makes a group of this warp's wgmmas since the last one.
DEVICE void wgmma_commit() { asm volatile("wgmma.commit_group.sync.aligned;" : : : "memory"); }`},
	{"wgmma_wait", 1, "", `
// Waits until at most n of this warp's groups are under way.
template <int pending>
DEVICE void wgmma_wait() { asm volatile("wgmma.wait_group.sync.aligned %0;" : : "n"(pending) : "memory"); }`},
	{"more_registers", 1, "", `
// Gives the threads of this warpgroup n registers each, once others have given up as many.
template <int n>
DEVICE void more_registers() { asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" : : "n"(n)); }`},
	{"fewer_registers", 1, "", `
// Leaves the threads of this warpgroup n registers each.
template <int n>
DEVICE void fewer_registers() { asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" : : "n"(n)); }`},
	{"elect", 1, "", `
// True in one lane of the warp.
DEVICE bool elect() {
  u32 chosen;
  asm volatile("{\n.reg .pred p;\nelect.sync _|p, 0xffffffff;\nselp.u32 %0, 1, 0, p;\n}" : "=r"(chosen));
  return chosen != 0;
}`},
	{"cluster_rank", 1, "", `
// This CTA's index in its cluster.
DEVICE u32 cluster_rank() {
  u32 v;
  asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(v));
  return v;
}`},
	{"cluster_sync", 1, "", `
// Makes all threads of the cluster wait for each other.
DEVICE void cluster_sync() {
  asm volatile("barrier.cluster.arrive.release.aligned;\nbarrier.cluster.wait.acquire.aligned;" : : : "memory");
}`},
	{"mbar_arrive_at", 1, "shared_address", `
// One arrival at the mbarrier in the same place of another CTA of the cluster. At the default scope: that of the
// cluster would cost two fences of the GPU's.
DEVICE void mbar_arrive_at(u64* bar, u32 rank) {
  asm volatile("{\n.reg .b32 there;\nmapa.shared::cluster.u32 there, %0, %1;\nmbarrier.arrive.shared::cluster.b64 _, [there];\n}"
               : : "r"(shared_address(bar)), "r"(rank) : "memory");
}`},
	{"tensor_g2s", 1, "shared_address", `
// Starts a copy of a tensor map's box at the coordinates, the innermost first, to
// shared memory by the async proxy; it completes as the box's bytes on the mbarrier.
DEVICE void tensor_g2s(void* dst, const void* map, i32 x, i32 y, i32 z, u64* bar) {
  asm volatile("cp.async.bulk.tensor.3d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3, %4}], [%5];"
               : : "r"(shared_address(dst)), "l"(map), "r"(x), "r"(y), "r"(z), "r"(shared_address(bar)) : "memory");
}`},
	{"tensor_g2s_multicast", 1, "shared_address", `
// As tensor_g2s, to the same place of every CTA of the cluster whose bit is set in mask,
// completing on the mbarrier in the same place there.
DEVICE void tensor_g2s_multicast(void* dst, const void* map, i32 x, i32 y, i32 z, u64* bar, u16 mask) {
  asm volatile(
      "cp.async.bulk.tensor.3d.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster [%0], [%1, {%2, %3, %4}], [%5], %6;"
      : : "r"(shared_address(dst)), "l"(map), "r"(x), "r"(y), "r"(z), "r"(shared_address(bar)), "h"(mask) : "memory");
}`},
}

func groupOps(t *[256]row) {
	t[ir.OpElect] = row{expr: helperCall("elect")}
	t[ir.OpClusterRank] = row{expr: helperCall("cluster_rank")}
	t[ir.OpBarCluster] = row{expr: helperCall("cluster_sync")}
	t[ir.OpMBarArriveAt] = row{expr: mbarrier("mbar_arrive_at")}
	t[ir.OpTensorG2S] = row{expr: spellTensor}
	t[ir.OpWGMMA] = row{expr: spellWGMMA}
	t[ir.OpWGMMAFence] = row{expr: helperCall("wgmma_fence")}
	t[ir.OpWGMMACommit] = row{expr: helperCall("wgmma_commit")}
	t[ir.OpWGMMAWait] = row{expr: withNumber("wgmma_wait")}
	t[ir.OpSetMaxReg] = row{expr: func(p *printer, in *ir.Instr) expr {
		return withNumber([...]string{"fewer_registers", "more_registers"}[in.Attr.Imm&1])(p, in)
	}}
}

// withNumber calls a helper that is a template of one number.
func withNumber(name string) spelling {
	return func(p *printer, in *ir.Instr) expr { return call(fmt.Sprintf("%s<%d>", p.fixed(name), in.Attr.N)) }
}

func spellTensor(p *printer, in *ir.Instr) expr {
	args := append([]string{p.address(in.Mem[0]), p.address(in.Mem[1])}, p.bareTexts(in)...)
	args = append(args, p.address(in.Mem[2]))
	if in.Attr.Imm == 0 {
		return call(p.fixed("tensor_g2s"), args...)
	}
	return call(p.fixed("tensor_g2s_multicast"), append(args, fmt.Sprintf("%#x", in.Attr.Imm))...)
}

// tileLayout is what a wgmma descriptor says besides the address: kind of swizzle, bytes between groups of 8 rows (both
// in units of 16), and between the groups of further columns, or 1 where a swizzled layout does not use that.
func tileLayout(t ir.Tile) uint64 {
	kind := map[int]uint64{64: 2, 128: 1}[t.Swizzle]
	across := uint64(1)
	if t.Across != 0 {
		across = uint64(t.Across) >> 4
	}
	return kind<<62 | uint64(t.Stride)>>4<<32 | across<<16
}

// spellWGMMA calls a helper of its shape with the variables by reference: as operands of one asm statement that are
// both read and written they stay in their registers from one wgmma to the next.
func spellWGMMA(p *printer, in *ir.Instr) expr {
	var args []string
	for i, m := range in.Mem {
		args = append(args, fmt.Sprintf("%s<%#xull>(%s)", p.fixed("tile"), tileLayout(in.Attr.Tiles[i]), p.address(m)))
	}
	for _, x := range in.Attr.Vars {
		name, ok := p.vars[x]
		if !ok {
			panic(fmt.Sprintf("BUG: emit: %s is used before it is declared", x))
		}
		args = append(args, name)
	}
	if len(in.Mem) == 1 { // as in PTX: A, then B
		args = append(args[1:1+ir.FragmentA:1+ir.FragmentA], append(args[:1:1], args[1+ir.FragmentA:]...)...)
	}
	s := wgmmaShape{elem: map[ir.Type]string{ir.BF16x2: "bf16", ir.F16x2: "f16", ir.E4M3x2: "e4m3"}[in.T],
		k: 16, columns: in.Columns(), registers: len(in.Mem) == 1,
		across: in.Attr.Tiles[len(in.Mem)-1].Across != 0, set: in.Attr.Imm == 1}
	if in.T == ir.E4M3x2 {
		s.k = 32
	}
	name := fmt.Sprintf("wgmma_m64n%dk%d_%s", s.columns, s.k, s.elem)
	for _, x := range []struct {
		is   bool
		name string
	}{{s.registers, "_registers"}, {s.across, "_across"}, {s.set, "_set"}} {
		if x.is {
			name += x.name
		}
	}
	return call(p.need(name, 1, func() string { return s.helper(name) }), args...)
}

// wgmmaShape is one kind of wgmma.mma_async.
type wgmmaShape struct {
	elem                   string
	k, columns             int
	registers, across, set bool // A is in registers; B's columns lie in rows; the sums are set
}

// helper is the text around it.
func (s wgmmaShape) helper(name string) string {
	elem, columns, sums := s.elem, s.columns, s.columns/2
	list := func(n int, format string) string {
		parts := make([]string, n)
		for i := range parts {
			parts[i] = fmt.Sprintf(format, i)
		}
		return wrap(strings.Join(parts, ", "), 100, "    ")
	}
	operand, params, a, doc := fmt.Sprintf("%%%d", sums), "u64 a", `"l"(a)`, fmt.Sprintf("A 64x%d and B", s.k)
	next, layouts, verb, add := sums+1, "0, ", "Adds A * B to the sums", 0
	if s.registers {
		operand, params = fmt.Sprintf("{%%%d, %%%d, %%%d, %%%d}", sums, sums+1, sums+2, sums+3),
			"u32 a0, u32 a1, u32 a2, u32 a3"
		a, doc, next, layouts = `"r"(a0), "r"(a1), "r"(a2), "r"(a3)`, "A 64x16 in registers, B", sums+4, ""
	}
	layout := 0
	if s.across {
		layout, doc = 1, doc+", its columns in rows,"
	}
	layouts += strconv.Itoa(layout)
	if s.k == 32 { // bytes lie along K
		layouts = ""
	} else {
		layouts = ", " + layouts
	}
	if s.set {
		verb, add = "Sets the sums to A * B", 1
	}
	var b strings.Builder
	fmt.Fprintf(&b, "// %s on the warpgroup's tensor core: %s %dx%d.\n", verb, doc, s.k, columns)
	fmt.Fprintf(&b, "%s void %s(%s, u64 b,\n    %s) {\n", device, name, params, list(sums, "float& d%d"))
	fmt.Fprintf(&b, "  asm volatile(\n    \"{\\n.reg .pred add;\\nsetp.eq.u32 add, 0, %d;\\n\"\n", add)
	fmt.Fprintf(&b, "    \"wgmma.mma_async.sync.aligned.m64n%dk%d.f32.%s.%s {\"\n", columns, s.k, elem, elem)
	for line := range strings.SplitSeq(list(sums, "%%%d"), "\n") {
		fmt.Fprintf(&b, "    \"%s\"\n", strings.TrimLeft(line, " "))
	}
	fmt.Fprintf(&b, "    \"}, %s, %%%d, add, 1, 1%s;\\n}\"\n", operand, next, layouts)
	fmt.Fprintf(&b, "    : %s\n    : %s, \"l\"(b));\n}", list(sums, `"+f"(d%d)`), a)
	return b.String()
}

// wrap breaks text after commas so that lines have at most width characters; lines behind the first begin with pad.
func wrap(text string, width int, pad string) string {
	var b strings.Builder
	at := 0
	for i, part := range strings.SplitAfter(text, ", ") {
		if i > 0 && at+len(part) > width {
			b.WriteString("\n" + pad)
			at = 0
		}
		b.WriteString(part)
		at += len(part)
	}
	return strings.ReplaceAll(b.String(), ", \n", ",\n")
}

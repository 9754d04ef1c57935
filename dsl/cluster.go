package dsl

import "github.com/mkgen/mkgen/dsl/ir"

// ClusterRank is the CTA's index in its cluster, CTA modulo Options.Cluster.
func (k *Kernel) ClusterRank() Val[U32] { return special[U32](k, ir.OpClusterRank) }

// ClusterBarrier makes all threads of the cluster wait for each other, with release and acquire at its scope. A CTA
// must not end before the others have ceased to use its shared memory: a kernel of clusters ends with one.
func (k *Kernel) ClusterBarrier() { k.emit(&ir.Instr{Op: ir.OpBarCluster}) }

// ArriveAt counts one arrival at mbarrier i of the cluster's CTA of the given rank.
func (m MBars) ArriveAt(i Index, rank Val[U32]) { m.op(ir.OpMBarArriveAt, i, rank.v) }

// TensorMap is a global buffer that holds a tensor map, made by the host from its description.
type TensorMap struct {
	k *Kernel
	b *ir.Buf
}

// NewTensorMap declares a tensor map over bytes of a global buffer from from on: dims elements of 2 bytes in three
// dimensions, the first contiguous, the others strides bytes apart, of which a copy takes a box.
func NewTensorMap[T Elem](k *Kernel, name string, of Buf[T], from int64, dims [3]int64, strides [2]int64, box [3]int,
	opts ...BufOpt) TensorMap {
	of.aligned(16)
	b := &ir.Buf{Name: name, Space: ir.Global, Elem: ir.B128, Len: ir.MapBytes / 16, Align: ir.MapPlace, ReadOnly: true,
		Map: &ir.TensorMap{Of: of.b.Base(), From: from, Dims: dims, Strides: strides, Box: box}}
	return TensorMap{k: k, b: newBuf[B128](k, b, opts).b}
}

// BoxBytes is what a copy of the map moves into a CTA.
func (m TensorMap) BoxBytes() int { return int(m.b.Map.BoxBytes()) }

// TensorCopy starts an asynchronous copy of the map's box at the coordinates, the innermost first, to shared element di
// of dst, a multiple of 128 bytes. It completes as BoxBytes on mbarrier mi of bars; what lies outside of the map is 0.
// With a mask the box goes to element di of every CTA of the cluster whose bit is set, and completes on its mbarrier
// mi.
func TensorCopy[D Elem](dst Buf[D], di Index, m TensorMap, at [3]Val[I32], bars MBars, mi Index, mask uint16) {
	k := kern(dst.k, m.k)
	r := dst.b.Base()
	r.Align = max(r.Align, ir.MapAlign)
	mem := append(dst.addr(di), ir.Addr{Buf: m.b})
	mem = append(mem, Buf[U64]{k: k, b: bars.b}.addr(mi)...)
	k.emit(&ir.Instr{Op: ir.OpTensorG2S, Args: ofValues(at[:]), Mem: mem, Attr: ir.Attr{Imm: int64(mask)}})
}

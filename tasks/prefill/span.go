package prefill

import "github.com/mkgen/mkgen/dsl"

// Span is the tokens that a product or attention of a step is of: N, at least 1, or with Last of these only as
// many as a cluster takes at once, the last one among them.
type Span struct {
	N    u32
	Last *dsl.Pred // nil: never
	// Begin is where a sequence of several in attention alone begins: its first row of queries and outputs, and its
	// first entry of the page table. nil: 0 of both.
	Begin *Begin
}

// Begin is where a sequence's rows and page entries begin, see Span. End is the row behind its last one,
// with those that pad it; nil for as many as the products take at once.
type Begin struct {
	Row, Entry u32
	End        *u32
}

// tiles is the number of pieces of size tokens, at least one, that are worked on, and the first of them.
func (s Span) tiles(k *dsl.Kernel, size int) (all, count, first u32) {
	all = s.N.AddC(size - 1).DivC(size)
	if s.Last == nil {
		return all, all, k.U32(0)
	}
	return all, dsl.Select(*s.Last, k.U32(1), all), dsl.Select(*s.Last, all.SubC(1), k.U32(0))
}

package product

import (
	"github.com/mkgen/mkgen/dsl"
	"github.com/mkgen/mkgen/pipeline"
	"github.com/mkgen/mkgen/tasks/internal/rule"
)

// MaxColumns is the most tokens of a step: two tiles of 8 columns.
const MaxColumns = 16

// ColumnsPadded is the number of columns that the templates for several tokens
// work with: 8 for up to 8 tokens, else 16.
func ColumnsPadded(tokens int) int {
	if tokens <= 8 {
		return 8
	}
	return MaxColumns
}

// Activations is a matrix product's input of T tokens (2 to MaxColumns) and K
// columns, in the type in which Format's weights are multiplied, in fragment order: [K/32][padded T][32], so that the
// fragments of a k group are one stretch of 512 bytes for 8 tokens. For weights of integers the 32 are in the order of
// InOrder. Columns from K to the next multiple of 32 and rows of unused tokens are never read.
type Activations struct {
	K, T   int
	Format pipeline.Format
}

// Padded is the number of columns there is room for, 8 or 16.
func (a Activations) Padded() int { return ColumnsPadded(a.T) }

// Len is the number of elements of the buffer.
func (a Activations) Len() int {
	return pipeline.CeilDiv(a.K, pipeline.GroupK) * a.Padded() * pipeline.GroupK
}

// Index is the place of element k of token t.
func (a Activations) Index(t, k int) int {
	in := k % pipeline.GroupK
	if inFixed(a.Format) {
		in = in%16/4*8 + in/16*4 + in%4
	}
	return (k/pipeline.GroupK*a.Padded()+t)*pipeline.GroupK + in
}

// InOrder is the place of a column of a k group in it. Of integers a lane's 16 bytes are its columns of a block of
// weights (package i4): 4t to 4t + 3 and 16 further on, t being the lane modulo 4.
func InOrder(f pipeline.Format, in u32) u32 {
	if !inFixed(f) {
		return in
	}
	return in.RemC(16).DivC(4).MulC(8).Add(in.DivC(16).MulC(4)).Add(in.RemC(4))
}

// At is Index in the kernel.
func (a Activations) At(t, k u32) u32 {
	group := k.DivC(pipeline.GroupK).MulC(a.Padded()).Add(t)
	return group.MulC(pipeline.GroupK).Add(InOrder(a.Format, k.RemC(pipeline.GroupK)))
}

// store writes 2 or 4 neighbouring elements of token t, from element from on, a
// multiple of their number.
func (a Activations) store(k *dsl.Kernel, to dsl.Buf[dsl.BF16], t, from u32, v ...f32) {
	var out []pair
	for i := 0; i < len(v); i += 2 {
		out = append(out, InputOf(k, a.Format, v[i], v[i+1]))
	}
	dsl.View[dsl.BF16x2](to).StoreN(a.At(t, from).DivC(2), out)
}

// problem says why buf cannot hold the activations, or nothing.
func (a Activations) problem(what string, buf dsl.Buf[dsl.BF16]) string {
	return rule.First(
		rule.Need(a.T >= 2 && a.T <= MaxColumns, "%s: %d tokens, want 2 to %d", what, a.T, MaxColumns),
		rule.Need(a.K > 0 && a.K%8 == 0, "%s: %d columns, want a positive multiple of 8", what, a.K),
		rule.Need(!inFixed(a.Format) || a.K%pipeline.GroupK == 0, "%s: %d columns, want a multiple of %d for %s", what, a.K,
			pipeline.GroupK, a.Format),
		rule.Need(int(buf.Len()) >= a.Len(), "%s: the buffer has %d elements, want %d for %d tokens of %d columns", what,
			buf.Len(), a.Len(), a.T, a.K))
}

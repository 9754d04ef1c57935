package attention

import (
	"github.com/mkgen/mkgen/dsl"
	"github.com/mkgen/mkgen/pipeline"
	"github.com/mkgen/mkgen/tasks/product"
)

// Output takes elements i and i + 1 (i even) of a query row's attention output,
// of Heads·D elements.
type Output func(row, i u32, lo, hi f32)

// RowMajor is the output [row][width] in bf16; width is even.
func RowMajor(b dsl.Buf[dsl.BF16], width int) Output {
	to := dsl.View[dsl.BF16x2](b)
	return func(row, i u32, lo, hi f32) {
		to.Store(row.MulC(width/2).Add(i.DivC(2)), dsl.Pack[dsl.BF16x2](lo, hi))
	}
}

// FragmentOrder is the output as the input of a matrix product of several rows:
// [width/32][rows][32], in the type in which a format's weights are multiplied.
func FragmentOrder(k *dsl.Kernel, b dsl.Buf[dsl.BF16], rows int, format pipeline.Format) Output {
	to := dsl.View[dsl.BF16x2](b)
	return func(row, i u32, lo, hi f32) {
		to.Store(i.DivC(32).MulC(rows).Add(row).MulC(16).Add(product.InOrder(format, i.RemC(32)).DivC(2)),
			product.InputOf(k, format, lo, hi))
	}
}

package sass_test

import (
	"testing"

	"github.com/mkgen/mkgen/emit/sass"
	"github.com/stretchr/testify/require"
)

// The kernel's line 336 calls a function of a header that calls another; line 400 calls the helper of line 130, which
// calls that of 112.
const somePTX = `.visible .entry k()
	.loc	1 333 0
	mov.u32 %r1, 0;
	.loc	1 336 3
	.loc	2 378 9, function_name $L__info_string0, inlined_at 1 336 3
	.loc	2 373 9, function_name $L__info_string1, inlined_at 2 378 9
	shfl.sync.idx.b32 %r4, %r3;
	.loc	1 400 3
	.loc	1 130 5, function_name $L__info_string2, inlined_at 1 400 3
	bar.sync 1;
	.loc	1 112 7, function_name $L__info_string3, inlined_at 1 130 5
	bar.bogus 1;
`

func TestLinesOfPTXLeadThroughInlinedFunctionsToTheKernel(t *testing.T) {
	o := sass.OriginsOf(somePTX)
	for ptx, want := range map[int][2]int{1: {0, 0}, 2: {333, 0}, 3: {333, 0}, 4: {336, 0}, 7: {336, 0}, 10: {400, 130},
		12: {400, 112}, 99: {400, 112}} {
		line, inside := o.At(ptx)
		require.Equal(t, want, [2]int{line, inside}, "line %d of the PTX", ptx)
	}
	line, inside := sass.OriginsOf("").At(3)
	require.Zero(t, line+inside)
}

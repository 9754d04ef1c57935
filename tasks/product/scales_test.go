package product_test

import (
	"testing"

	"github.com/mkgen/mkgen/dsl/ir"
	"github.com/mkgen/mkgen/pipeline"
	"github.com/mkgen/mkgen/tasks/internal/rig"
	"github.com/stretchr/testify/require"
)

// A thread that loads its rows' scales ahead of a batch of tiles only keeps them there. Whatever it computed of them
// would wait for memory before the batch instead of behind it.
func TestScalesLoadedAheadAreOnlyKept(t *testing.T) {
	const rows, k = 32, 256
	for _, f := range []pipeline.Format{pipeline.FormatE4M3, pipeline.FormatI8, pipeline.FormatI4} {
		t.Run(string(f), func(t *testing.T) {
			w, x := rig.Normals(rig.Rand(1), rows*k, 1), rig.Normals(rig.Rand(2), k, 1)
			kernel, err := gemvRig(t, gemvCase{rows: rows, k: k, sms: 1, consumers: 2, format: f}, w, x).K.Finish()
			require.NoError(t, err)
			loaded := map[*ir.Value]bool{}
			kernel.Instrs(func(in *ir.Instr) {
				if in.Op == ir.OpLd && in.Mem[0].Buf.Name == "w" {
					for _, v := range in.Res {
						loaded[v] = true
					}
				}
				for _, v := range in.Args {
					require.False(t, loaded[v] && in.Op != ir.OpSet, "a scale goes into %v", in.Op)
				}
			})
			require.NotEmpty(t, loaded)
		})
	}
}

package main

import (
	"os"
	"testing"

	"github.com/mkgen/mkgen/internal/nvcc/nvcctest"
	"github.com/stretchr/testify/require"
)

// The lines are cuobjdump's.
func TestPartsOfStrongLoadsAreFound(t *testing.T) {
	const (
		whole  = "        /*1a40*/                   LDG.E.128.STRONG.GPU R4, desc[UR4][R2.64+0x10] ;  /* 0x0000100402047981 */\n"
		first  = "        /*1a50*/                   LDG.E.STRONG.GPU R9, desc[UR4][R2.64] ;  /* 0x0000000402097981 */\n"
		tag    = "        /*1a60*/              @!P0 LDG.E.STRONG.GPU R9, desc[UR4][R2.64+0xc] ;  /* 0x00000c0402097981 */\n"
		half   = "        /*1a70*/                   LDG.E.64.STRONG.GPU R10, desc[UR4][R2.64+-0x8] ;  /* 0xfffff804020a7981 */\n"
		third  = "        /*1a80*/                   LDG.E.STRONG.GPU R9, desc[UR4][R2.64+0x128] ;  /* 0x0001280402097981 */\n"
		system = "        /*1a90*/                   LDG.E.STRONG.SYS R9, desc[UR4][R2.64+0x4] ;  /* 0x0000040402097981 */\n"
		weak   = "        /*1aa0*/                   LDG.E R9, desc[UR4][R2.64+0x4] ;  /* 0x0000040402097981 */\n"
	)
	n, part := strongLoads(whole + first + system + weak + whole)
	require.Equal(t, 2, n)
	require.Empty(t, part)
	for _, line := range []string{tag, half, third} {
		_, part := strongLoads(whole + line + whole)
		require.NotEmpty(t, part, line)
		require.Contains(t, line, part)
	}
}

func TestAKernelWhoseTagIsLoadedByItselfIsRefused(t *testing.T) {
	nvcctest.Need(t)
	const file = "../../nvcc/testdata/split.cu"
	code, stdout, stderr := ran(file)
	require.Zero(t, code, stderr)
	require.Contains(t, stdout, ", 1 strong load of 128 bits,")

	text, err := os.ReadFile(file)
	require.NoError(t, err)
	code, _, stderr = ran(source(t, "#define TWO\n"+string(text)))
	require.Equal(t, 1, code)
	require.Regexp(t, `k\.cu: strong loads: found "LDG\.E\.STRONG\.GPU [^"]*\+0xc\] ;", want LDG\.E\.128\.STRONG\.GPU alone: ptxas made several loads`, stderr)
}

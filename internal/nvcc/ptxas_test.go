package nvcc

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

const twoKernels = `ptxas info    : 24 bytes gmem
ptxas info    : Compiling entry function 'step' for 'sm_90a'
ptxas info    : Function properties for step
    288 bytes stack frame, 340 bytes spill stores, 344 bytes spill loads
ptxas info    : Used 255 registers, used 9 barriers, 288 bytes cumulative stack size, 1024 bytes smem, 352 bytes cmem[0]
ptxas info    : Compile time = 12.500 ms
ptxas info    : Function properties for helper
    8 bytes stack frame, 4 bytes spill stores, 2 bytes spill loads
ptxas warning : something else
ptxas info    : Compiling entry function 'other' for 'sm_90a'
ptxas info    : Function properties for other
    0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
ptxas info    : Used 15 registers
`

func TestParsePtxasReadsEveryFigureOfEveryFunction(t *testing.T) {
	functions, err := ParsePtxas(twoKernels)
	require.NoError(t, err)
	require.Equal(t, []Function{
		{Name: "step", Entry: true, Registers: 255, Barriers: 9, Stack: 288, SpillStores: 340, SpillLoads: 344, Shared: 1024,
			CompileTime: 12500 * time.Microsecond},
		{Name: "helper", Stack: 8, SpillStores: 4, SpillLoads: 2},
		{Name: "other", Entry: true, Registers: 15},
	}, functions)
	stores, loads := (&Report{Functions: functions}).Spills()
	require.Equal(t, []int{344, 346}, []int{stores, loads})
}

func TestParsePtxasRefusesTextWithoutSpillFigures(t *testing.T) {
	for text, want := range map[string]string{
		"":          "no kernel",
		"warning\n": "no kernel",
		"ptxas info : Compiling entry function 'k' for 'sm_90a'\n":                                                                                        "no spill figures for k",
		"ptxas info : Compiling entry function 'k' for 'sm_90a'\nptxas info : Used 8 registers\n":                                                         "no spill figures for k",
		"Compiling entry function 'k' for 'sm_90a'\nFunction properties for k\n 0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads\n":         "no register count for k",
		"Compiling entry function 'k' for 'sm_90a'\nUsed 8 registers\nFunction properties for g\n 0 bytes stack frame, 0 bytes spill stores, 0 bytes\n\n": "no spill figures for k",
	} {
		_, err := ParsePtxas(text)
		require.ErrorContains(t, err, want, "%q", text)
	}
}

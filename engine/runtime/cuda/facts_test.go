package cuda

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"
)

var h200 = Facts{Name: "NVIDIA H200", Driver: 13000, ComputeMajor: 9, SMs: 132, SharedOptin: 232448, Cooperative: true}

func TestCheckNamesEveryNeedThatIsNotMet(t *testing.T) {
	a100 := Facts{Ordinal: 1, Name: "A100", Driver: 12040, ComputeMajor: 8, SMs: 108, SharedOptin: 166912}
	err := a100.Check(Needs{Arch: "sm_90a", Driver: 13000, SMs: 132, Shared: 200000})
	require.EqualError(t, err, "cuda: GPU 1 (A100) does not fit: compute capability 8.0 does not run code for sm_90a; "+
		"its driver supports CUDA 12.4, needed is 13.0; 108 SMs, needed are 132; "+
		"166912 bytes of shared memory per block, needed are 200000; no cooperative launch, which is needed")
}

func TestCheckPassesWhatFits(t *testing.T) {
	require.NoError(t, h200.Check(Needs{}))
	require.NoError(t, h200.Check(Needs{Arch: "sm_90a", Driver: 13000, SMs: 132, Shared: 232448}))
	require.Error(t, h200.Check(Needs{SMs: 133}))
	require.Error(t, h200.Check(Needs{Shared: 232449}))
	require.Error(t, h200.Check(Needs{Driver: 13010}))
}

func TestArchitecturesThatRun(t *testing.T) {
	for _, c := range []struct {
		major, minor int
		arch         string
		runs         bool
	}{
		{9, 0, "sm_90", true}, {9, 0, "sm_90a", true}, {9, 0, "sm_80", false}, {8, 9, "sm_80", true}, {8, 0, "sm_89", false},
		{10, 3, "sm_100", true}, {10, 3, "sm_100a", false}, {10, 3, "sm_100f", true}, {12, 0, "sm_90a", false},
	} {
		got, err := Facts{ComputeMajor: c.major, ComputeMinor: c.minor}.runs(c.arch)
		require.NoError(t, err)
		require.Equal(t, c.runs, got, "%d.%d runs %s", c.major, c.minor, c.arch)
	}
	for _, wrong := range []string{"90a", "sm_", "sm_a", "sm_90aa", "sm_9", "compute_90"} {
		err := h200.Check(Needs{Arch: wrong})
		require.ErrorContains(t, err, "want one such as sm_90a", wrong)
	}
}

func TestResidencyCountsBlocksOnAllSMs(t *testing.T) {
	require.NoError(t, resident("step", 1, 132, 132, 288, 200000))
	require.NoError(t, resident("step", 2, 132, 264, 288, 100000))
	require.EqualError(t, resident("step", 1, 132, 133, 288, 200000),
		"cuda: launch step: 133 blocks of 288 threads with 200000 bytes "+
			"of dynamic shared memory cannot all be resident: 1 per SM on 132 SMs makes 132")
	require.Error(t, resident("step", 0, 132, 1, 1024, 232448))
}

func TestFactsAreReadableAsJSON(t *testing.T) {
	text, err := json.Marshal(h200)
	require.NoError(t, err)
	var back Facts
	require.NoError(t, json.Unmarshal(text, &back))
	require.Equal(t, h200, back)
	require.Contains(t, string(text), `"shared_optin_bytes":232448`)
}

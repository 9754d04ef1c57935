package gate

import (
	"testing"

	"github.com/mkgen/mkgen/lab/probe"
	"github.com/mkgen/mkgen/megakernel"
	"github.com/mkgen/mkgen/models"
	"github.com/stretchr/testify/require"
)

func localOf(sequences ...Sequence) *local {
	mk := &megakernel.Kernel{Config: models.Config{Layers: 32}}
	return &local{ref: &Reference{Sequences: sequences}, s: &Subject{Kernel: mk, PlantProbe: (&scripted{}).plant}}
}

func TestWindowsOfAReference(t *testing.T) {
	l := localOf(Sequence{Length: 512, Scored: 512}, Sequence{Length: 32768, First: 32256, Scored: 512})
	require.Equal(t, []window{{WindowLongest, 1, 32640, 32768}, {WindowShort, 0, 0, 256}}, l.windows())
	require.Equal(t, []int{32671, 32672, 32703, 32704, 32735, 32767}, l.windows()[0].probed())
	require.Equal(t, []int{64, 128, 159, 191, 223, 255}, l.windows()[1].probed())
	require.Equal(t, []int{0, 16, 31}, l.layers())
	l = localOf(Sequence{Length: 600, First: 595, Scored: 5})
	require.Equal(t, []window{{WindowLongest, 0, 595, 600}}, l.windows(), "none is scored from its beginning")
	require.Empty(t, l.windows()[0].pagesAt())
	l.s.PlantProbe = nil
	require.Empty(t, l.windows())
}

func TestAMissedLocalFaultFailsTheGate(t *testing.T) {
	set := LocalSetting{Name: WindowShort, Faults: []LocalFault{
		{Fault: ValueScaled, CaughtBy: []string{ByLogits}}, {Fault: RopeUnscaled, Skipped: "not scaled"}, {Fault: StaleRow}}}
	require.Equal(t, []string{"short context: fault stale_row was not caught"}, set.problems())
	set.Faults = set.Faults[:2]
	require.Empty(t, set.problems())
	set.Figures = probe.Figures{{What: probe.KeyRow, Worst: 0.02, Limit: 0.004, Where: "layer 3"}}
	require.Equal(t, []string{"short context: key_row is off by 0.02, want at most 0.004: layer 3"}, set.problems())

	r := Record{Passed: true}
	r.withLocal(nil)
	require.Equal(t, Record{Passed: true}, r)
	r.withLocal(&Local{Reasons: set.problems()})
	require.False(t, r.Passed)
	require.Equal(t, set.problems(), r.Reasons)
	require.NotNil(t, r.OfCase(0).Local)
	require.Nil(t, r.OfCase(1).Local)
}

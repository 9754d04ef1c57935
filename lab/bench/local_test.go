package bench_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"github.com/mkgen/mkgen/internal/deep"
	"github.com/mkgen/mkgen/lab/gate"
	"github.com/mkgen/mkgen/lab/probe"
	"github.com/mkgen/mkgen/megakernel/reference"
	"github.com/mkgen/mkgen/models"
	"github.com/mkgen/mkgen/models/synth"
	"github.com/stretchr/testify/require"
)

// writeRows adds projections of float64's keys and values to a reference that writeReference
// wrote, and scores only the last positions of its last sequence.
func writeRows(t *testing.T, dir string, c models.Config, seed uint64, scored int) {
	t.Helper()
	path := filepath.Join(dir, "manifest.json")
	var manifest map[string]any
	data, err := os.ReadFile(path)
	require.NoError(t, err)
	require.NoError(t, json.Unmarshal(data, &manifest))
	list := manifest["sequences"].([]any)
	for q, entry := range list {
		s := entry.(map[string]any)
		length := int(s["length"].(float64))
		m, err := reference.NewModel(c, reference.Synthetic(c, seed), reference.Hooks{})
		require.NoError(t, err)
		for _, id := range synth.Tokens(seed, q, length, c.Vocab) {
			m.Step(id)
		}
		s["kv"] = s["o"].(string) + ".kv"
		require.NoError(t, os.WriteFile(filepath.Join(dir, s["kv"].(string)), rowsOf(m, c), 0o666))
		if q == len(list)-1 {
			s["first"], s["scored"] = length-scored, scored
			for kind, size := range map[string]int{"o": 4 * c.Vocab, "h": 4 * c.Vocab, "s": 8} {
				file := filepath.Join(dir, s[kind].(string))
				all, err := os.ReadFile(file)
				require.NoError(t, err)
				require.NoError(t, os.WriteFile(file, all[size*(length-scored):], 0o666))
			}
		}
	}
	data, err = json.Marshal(manifest)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(path, data, 0o666))
}

// rowsOf are the projections of a model's cache, as tests/gpu/kvrows.py writes them.
func rowsOf(m *reference.Model, c models.Config) (out []byte) {
	row := make([]float32, c.HeadDim)
	for l := range c.Layers {
		keys, values := m.Cache(l)
		for _, all := range [][][]float64{keys, values} {
			for head := range c.KVHeads {
				for _, token := range all {
					for i := range row {
						row[i] = float32(token[head*c.HeadDim+i])
					}
					out = probe.PutRow(out, row)
				}
			}
		}
	}
	return out
}

// The local checks on the executor: the kernel passes, and every local fault is caught at short
// contexts and behind a longer one.
func TestLocalFaultsAreCaught(t *testing.T) {
	if !deep.On() {
		t.Skip("runs seven kernels in two windows on the executor")
	}
	s := tinySuite(t)
	dir := writeReference(t, s.Kernel.Config, 2, 40, 72)
	writeRows(t, dir, s.Kernel.Config, 2, 16)
	var err error
	s.Reference, err = gate.OpenReference(dir)
	require.NoError(t, err)
	s.Rules = small()
	s.Method.Contexts = s.Method.Contexts[:1]
	o, err := s.Run(t.Context())
	require.NoError(t, err)
	local := o.Gate.Gate.Local
	require.NotNil(t, local)
	for _, x := range local.Rows {
		t.Logf("rows: %+v", x)
	}
	for _, set := range local.Settings {
		t.Logf("%s: positions %d to %d, probed %v, logits %v KL %v of %v", set.Name, set.From, set.To, set.Probed,
			set.ByLogits, set.KL, set.KLKernels)
		for _, x := range set.Figures {
			t.Logf("  %+v", x)
		}
		for _, f := range set.Faults {
			t.Logf("  %s %s: %v KL %v", f.Fault, f.Skipped, f.CaughtBy, f.KL)
			for _, x := range f.Figures.Beyond() {
				t.Logf("    %+v, ratio %.1f", x, x.Ratio())
			}
		}
	}
	require.Empty(t, local.Reasons)
	require.True(t, local.Passed)
	require.Len(t, local.Settings, 2)
	for _, set := range local.Settings {
		require.Len(t, set.Faults, len(gate.LocalFaults()))
		for _, f := range set.Faults {
			require.Empty(t, f.Skipped, f.Fault)
			require.NotEmpty(t, f.CaughtBy, f.Fault)
		}
	}
}

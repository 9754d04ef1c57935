package quant_test

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/mkgen/mkgen/models/quant"
	"github.com/stretchr/testify/require"
)

// The fault "activation order's permutation skipped in one matrix" is planted where the permutation is undone: kernels
// never permute. With its columns' groups in sequence a matrix misses what the package computed of it, and no other
// does.
func TestASkippedActivationOrderShowsInItsMatrixAlone(t *testing.T) {
	planted := 0
	for dir, suffix := range map[string]string{
		"testdata/gptq_i4g32_act_order_sharded": "g_idx",
		"testdata/gptq_i8g32_act_order":         "g_idx",
		"testdata/gptq_v2_i4g32_zero":           "g_idx",
		"testdata/ct_i4g32_order":               "weight_g_idx",
	} {
		c, want := open(t, dir), expected(t, dir)
		require.Empty(t, missed(t, c, want))
		for _, name := range c.Names() {
			m := c.Matrix(name)
			if m.Groups() == nil {
				continue
			}
			files := load(t, dir)
			inSequence(t, files, strings.TrimSuffix(name, "weight")+suffix, m.Format.Cols)
			faulty, err := quant.OpenFS(files)
			require.NoError(t, err)
			require.Nil(t, faulty.Matrix(name).Groups())
			require.Equal(t, []string{name}, missed(t, faulty, want), dir)
			require.NoError(t, faulty.Close())
			planted++
		}
	}
	require.Greater(t, planted, 20)
}

// missed are the tensors that are not what the package computed.
func missed(t *testing.T, c *quant.Checkpoint, want map[string]computed) (names []string) {
	for _, name := range c.Names() {
		hash := sha256.New()
		require.NoError(t, binary.Write(hash, binary.LittleEndian, rows(t, c.Matrix(name))))
		if want[name].SHA256 != hex.EncodeToString(hash.Sum(nil)) {
			names = append(names, name)
		}
	}
	return names
}

// inSequence gives the columns of a matrix, whose g_idx is the tensor, their groups one behind another.
func inSequence(t *testing.T, files fstest.MapFS, tensor string, columns int) {
	for name, file := range files {
		if strings.HasSuffix(name, ".safetensors") && bytes.Contains(file.Data, []byte(`"`+tensor+`"`)) {
			patch(t, file.Data, tensor, func(data []byte) {
				for k := range len(data) / 4 {
					binary.LittleEndian.PutUint32(data[4*k:], uint32(k/columns))
				}
			})
			return
		}
	}
	require.Fail(t, "no file has "+tensor)
}

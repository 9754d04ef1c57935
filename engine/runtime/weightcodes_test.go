package runtime_test

import (
	"bytes"
	"fmt"
	"math"
	"testing"

	"github.com/mkgen/mkgen/engine/runtime"
	"github.com/mkgen/mkgen/megakernel"
	"github.com/mkgen/mkgen/models"
	"github.com/mkgen/mkgen/models/half"
	"github.com/mkgen/mkgen/pipeline"
	"github.com/stretchr/testify/require"
)

// coded are tensors with codes of their own, of the LM head, too, not those that their rows would be rounded to.
type coded struct{ cheap }

func (c coded) Reading(use func(row func(string, int, []half.BF16) ([]byte, error)) error) error {
	return use(func(tensor string, row int, scratch []half.BF16) ([]byte, error) {
		err := c.Row(tensor, row, scratch)
		var out []byte
		for _, v := range scratch {
			out = v.Append(out)
		}
		return out, err
	})
}

func (coded) Int4Row(_ string, row int, codes []int8, scales []float32, zeros []int8) error {
	for i := range codes {
		codes[i] = int8((row+i)%16 - 8)
	}
	for i := range scales {
		scales[i], zeros[i] = 0.25, int8((row+i)%16-8)
	}
	return nil
}

func (coded) HeadCoded() bool { return true }

// TestCheckedTensorsKeepTheirCodes: of the LM head, too, which was rounded once more where weights were checked.
func TestCheckedTensorsKeepTheirCodes(t *testing.T) {
	c, err := models.Lookup("tiny")
	require.NoError(t, err)
	c.TieEmbeddings = false
	const format = pipeline.Format("i4g32-zeros")
	mk, err := megakernel.Build(c, megakernel.Options{SMs: 2, Weights: format, Head: format})
	require.NoError(t, err)
	var images []map[string][]byte
	for _, check := range []bool{false, true} {
		dev := newMemory(mk)
		_, err := runtime.FromTensors(coded{}, runtime.LoadOptions{Check: check}).Load(t.Context(), mk, dev)
		require.NoError(t, err)
		images = append(images, dev.bytes)
	}
	for name, want := range images[0] {
		require.True(t, bytes.Equal(want, images[1][name]), name)
	}
}

// spoiledCodes are coded, all codes 1, with a NaN of e4m3 in one place, or where exponents is set a NaN of E8M0.
type spoiledCodes struct {
	coded
	tensor    string
	exponents bool
}

func (s spoiledCodes) Int4Row(tensor string, row int, codes []int8, scales []float32, zeros []int8) error {
	err := s.coded.Int4Row(tensor, row, codes, scales, zeros)
	for i := range codes {
		codes[i] = 1
	}
	switch {
	case tensor != s.tensor || row != 31:
	case s.exponents:
		scales[1] = float32(math.NaN())
	default:
		codes[7] = 0x7f
	}
	return err
}

// A packed matrix has rows of several tensors: the error names the one at fault, and its row.
func TestCheckRefusesCodesThatAreNotFinite(t *testing.T) {
	c, err := models.Lookup("tiny")
	require.NoError(t, err)
	c.TieEmbeddings = false
	for _, format := range []pipeline.Format{pipeline.FormatE4M3, pipeline.FormatE4M3B128, pipeline.FormatMXFP4} {
		exponents, column := format == pipeline.FormatMXFP4, 7
		if exponents {
			column = 32
		}
		mk, err := megakernel.Build(c, megakernel.Options{SMs: 2, Weights: format, Head: format})
		require.NoError(t, err)
		for _, tensor := range []string{"model.layers.1.mlp.up_proj.weight", "model.layers.0.self_attn.v_proj.weight",
			"lm_head.weight"} {
			w := spoiledCodes{tensor: tensor, exponents: exponents}
			_, err := runtime.FromTensors(w, runtime.LoadOptions{Check: true}).Load(t.Context(), mk, newMemory(mk))
			require.EqualError(t, err, fmt.Sprintf("%s: found NaN at [31, %d], want finite weights", tensor, column), format)
			_, err = runtime.FromTensors(w, runtime.LoadOptions{}).Load(t.Context(), mk, newMemory(mk))
			require.NoError(t, err, format)
		}
	}
}

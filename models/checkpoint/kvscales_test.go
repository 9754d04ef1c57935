package checkpoint

import (
	"encoding/binary"
	"fmt"
	"math"
	"testing"

	"github.com/mkgen/mkgen/models"
	"github.com/stretchr/testify/require"
)

// scaleTensors are the scales of a fixture with two layers: K's 1 + layer, a
// number for each KV head where there are several, V's a quarter.
func scaleTensors(layers, heads int, dtype models.DType) (list []Tensor) {
	for layer := range layers {
		k := Tensor{Name: fmt.Sprintf(kvScaleNames[0], layer), DType: dtype, Shape: []int{heads}}
		v := Tensor{Name: fmt.Sprintf(kvScaleNames[1], layer), DType: models.F32,
			Data: binary.LittleEndian.AppendUint32(nil, math.Float32bits(0.25))}
		for head := range heads {
			x := float32(1+layer) + float32(head)/2
			switch dtype {
			case models.BF16:
				k.Data = bitsOf(x).Append(k.Data)
			case models.F16:
				f, exp := math.Frexp(float64(x))
				k.Data = binary.LittleEndian.AppendUint16(k.Data, uint16((exp+14)<<10|int((2*f-1)*1024)))
			default:
				k.Data = binary.LittleEndian.AppendUint32(k.Data, math.Float32bits(x))
			}
		}
		list = append(list, k, v)
	}
	return list
}

func TestScalesOfAFloat8Cache(t *testing.T) {
	const fixture = "single_bf16"
	config := configOf(t, fixture)
	c := open(t, single(t, fixture, full(t, fixture, models.BF16)))
	scales, err := c.KVScales()
	require.NoError(t, err)
	require.Nil(t, scales)
	for _, heads := range []int{1, config.KVHeads} {
		for _, dtype := range []models.DType{models.F32, models.BF16, models.F16} {
			list := append(full(t, fixture, models.BF16), scaleTensors(config.Layers, heads, dtype)...)
			c := open(t, single(t, fixture, list))
			var want []float32
			for layer := range config.Layers {
				for head := range config.KVHeads {
					want = append(want, float32(1+layer)+float32(min(head, heads-1))/2, 0.25)
				}
			}
			got, err := c.KVScales()
			require.NoError(t, err)
			require.Equal(t, want, got, "%d heads, %s", heads, dtype)
			require.NoError(t, c.Check(t.Context(), nil))
			require.NoError(t, c.Close())
			_, err = c.KVScales()
			require.ErrorIs(t, err, ErrClosed)
		}
	}
}

func TestScalesThatDoNotFitAreRefused(t *testing.T) {
	const fixture = "single_bf16"
	config := configOf(t, fixture)
	all := full(t, fixture, models.BF16)
	scales := scaleTensors(config.Layers, 1, models.F32)
	require.Equal(t, "model.layers.1.self_attn.v_scale: found nothing, want it, as there is model.layers.0.self_attn.k_scale",
		refusal(t, single(t, fixture, append(all, scales[:len(scales)-1]...))))
	scales[0].Shape, scales[0].Data = []int{7}, make([]byte, 28)
	require.Equal(t, fmt.Sprintf(
		"model.safetensors: model.layers.0.self_attn.k_scale: found shape [7], want one number, or %d, one a KV head",
		config.KVHeads), refusal(t, single(t, fixture, append(all, scales...))))
}

package gate

import (
	"encoding/binary"
	"math"
	"testing"

	"github.com/stretchr/testify/require"
)

// The scales of random weights are alike in most rows: a fault of scales must change those, too.
func TestANeighboursScaleIsAnother(t *testing.T) {
	f32 := func(x float32) []byte { return binary.LittleEndian.AppendUint32(nil, math.Float32bits(x)) }
	scale := make([]byte, 4)
	takeScale(scale, f32(0.25), f32(0.75))
	require.Equal(t, f32(0.75), scale)
	takeScale(scale, f32(0.25), f32(0.25))
	require.Equal(t, f32(0.5), scale)
}

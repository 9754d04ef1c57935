package pipeline_test

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/mkgen/mkgen/models/half"
	"github.com/mkgen/mkgen/pipeline"
	"github.com/stretchr/testify/require"
)

// mlp is a layer whose down projection is dealt out by columns, or by rows.
func mlp(sms, hidden, inner int, from string) pipeline.Request {
	return pipeline.Request{SMs: sms, Layers: 2, SharedLimit: 232448, Layer: []pipeline.Matrix{
		{Name: "qkv", Rows: hidden, K: hidden}, {Name: "gate_up", Rows: 2 * inner, K: hidden},
		{Name: "down", Rows: hidden, K: inner, From: from}}}
}

func TestColumnsFollowTheRowsThatMakeThem(t *testing.T) {
	for _, c := range []struct{ sms, hidden, inner int }{{1, 64, 8}, {3, 72, 104}, {5, 200, 16}, {132, 512, 1416}} {
		p, err := pipeline.New(mlp(c.sms, c.hidden, c.inner, "gate_up"))
		require.NoError(t, err)
		up, down := &p.Layer[1], &p.Layer[2]
		require.Equal(t, up.First, down.First)
		require.Equal(t, up.Count, down.Count)
		require.EqualValues(t, 2*pipeline.AcrossColumns*((c.hidden+63)/64*64), down.TileBytes(),
			"only rows are padded, to 64")
		require.EqualValues(t, p.PackedBytes, 2*p.LayerBytes)
	}
}

// No padding, and shares as even as those by rows, of the models' shapes.
func TestSharesByColumnsAreAsEvenAsByRows(t *testing.T) {
	for _, c := range []struct{ hidden, kv, inner int }{{2048, 512, 8192}, {3072, 1024, 8192}, {4096, 1024, 14336}} {
		layer := func(from string) pipeline.Request {
			r := mlp(132, c.hidden, c.inner, from)
			r.Layer[0].Rows += 2 * c.kv
			r.Layer = slices.Insert(r.Layer, 1, pipeline.Matrix{Name: "o", Rows: c.hidden, K: c.hidden})
			return r
		}
		rows, err := pipeline.New(layer(""))
		require.NoError(t, err)
		columns, err := pipeline.New(layer("gate_up"))
		require.NoError(t, err)
		t.Logf("%+v: %.4f by rows, %.4f by columns; gate_up %d to %d tiles", c, rows.Efficiency().Layer,
			columns.Efficiency().Layer, slices.Min(columns.Layer[2].Count), columns.Layer[2].MaxCount())
		require.Equal(t, rows.PackedBytes, columns.PackedBytes)
		require.Equal(t, columns.WeightBytes(), columns.PackedBytes)
		require.InDelta(t, rows.Efficiency().Layer, columns.Efficiency().Layer, 0.006, "%+v", c)
	}
}

// Every element has a place of its own, in the whole tile.
func TestPlacesOfElementsOfATileOfColumns(t *testing.T) {
	const rows = 3 * pipeline.AcrossRows
	taken := make([]bool, rows*pipeline.AcrossColumns)
	for r := range rows {
		for k := range pipeline.AcrossColumns {
			at := pipeline.AcrossOffset(r, k)
			require.Zero(t, at%2)
			require.False(t, taken[at/2], "(%d, %d)", r, k)
			taken[at/2] = true
		}
	}
	require.NotContains(t, taken, false)
}

func TestUnpackingColumnsIsTheInverseOfPacking(t *testing.T) {
	for _, c := range []struct{ sms, hidden, inner int }{{1, 64, 8}, {3, 72, 104}, {5, 200, 16}} {
		t.Run(fmt.Sprintf("%+v", c), func(t *testing.T) {
			p, err := pipeline.New(mlp(c.sms, c.hidden, c.inner, "gate_up"))
			require.NoError(t, err)
			rng := rand.New(rand.NewPCG(1, 2))
			image := make([]byte, p.LayerBytes)
			var want [3][]half.BF16
			for i := range p.Layer {
				m := &p.Layer[i]
				for range m.Rows * m.K {
					want[i] = append(want[i], half.BF16(rng.Uint32())|1)
				}
				require.NoError(t, p.Pack(image, 1, i, pipeline.Permuted(want[i], m.K, nil)))
			}
			zeros := len(image) / 2
			for i := range p.Layer {
				got := make([]half.BF16, len(want[i]))
				require.NoError(t, p.Unpack(got, image, 1, i))
				require.Equal(t, want[i], got, p.Layer[i].Name)
				zeros -= len(got)
			}
			for at := 0; at < len(image); at += 2 {
				if binary.LittleEndian.Uint16(image[at:]) == 0 {
					zeros--
				}
			}
			require.Zero(t, zeros, "what is no element is 0")
		})
	}
}

func TestPackingColumnsSaysWhichRowFails(t *testing.T) {
	p, err := pipeline.New(mlp(2, 64, 16, "gate_up"))
	require.NoError(t, err)
	image := make([]byte, p.LayerBytes)
	require.ErrorContains(t, p.Pack(image, 0, 2, pipeline.Permuted(make([]half.BF16, 5*16), 16, nil)),
		`pipeline: "down" row 5: source row 5 of a matrix of 5 rows`)
	short := func(int, []half.BF16) ([]half.BF16, error) { return make([]half.BF16, 3), nil }
	require.ErrorContains(t, p.Pack(image, 0, 2, short), `"down" row 0 has 3 columns, want 16`)
}

func TestColumnsAreRefusedWhereNothingMakesThem(t *testing.T) {
	for want, change := range map[string]func(r *pipeline.Request){
		`Layer[2] "down": From is "up", want a matrix before it`:      func(r *pipeline.Request) { r.Layer[2].From = "up" },
		`Layer[0] "down": From is "gate_up", want a matrix before it`: func(r *pipeline.Request) { slices.Reverse(r.Layer) },
		`Layer[2] "down": K is 24, want 16: half of the 32 rows`:      func(r *pipeline.Request) { r.Layer[2].K = 24 },
		`Layer[3] "more": From is "gate_up", which "down" has, too`: func(r *pipeline.Request) {
			r.Layer = append(r.Layer, pipeline.Matrix{Name: "more", Rows: 8, K: 16, From: "gate_up"})
		},
		`Layer[3] "more": From is "down", want a matrix before it`: func(r *pipeline.Request) {
			r.Layer = append(r.Layer, pipeline.Matrix{Name: "more", Rows: 8, K: 32, From: "down"})
		},
		`"down": From is "gate_up", but tiles are interleaved in batches`: func(r *pipeline.Request) { r.BatchTiles = 4 },
	} {
		r := mlp(2, 64, 16, "gate_up")
		change(&r)
		_, err := pipeline.New(r)
		require.ErrorContains(t, err, want)
	}
}

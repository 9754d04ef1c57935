package pipeline_test

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync/atomic"
	"testing"

	"github.com/mkgen/mkgen/models/half"
	"github.com/mkgen/mkgen/pipeline"
	"github.com/stretchr/testify/require"
)

// odd has padded rows and columns, tails, more SMs than tiles of one matrix, and
// shares that differ.
func odd(sms int) pipeline.Request {
	return pipeline.Request{
		SMs: sms, Layers: 3,
		Layer: []pipeline.Matrix{{Name: "a", Rows: 43, K: 150}, {Name: "b", Rows: 8, K: 32},
			{Name: "c", Rows: 333, K: 33}},
		Final:       []pipeline.Matrix{{Name: "d", Rows: 17, K: 31}, {Name: "e", Rows: 1, K: 1}},
		StageBytes:  1024,
		SharedLimit: 65536,
	}
}

// interleaved is odd with batches, of which some shares end in shorter ones.
func interleaved(sms, most int) pipeline.Request {
	r := odd(sms)
	r.BatchTiles = most
	return r
}

func random(n int, seed uint64) []half.BF16 {
	rng, v := rand.New(rand.NewPCG(seed, 1)), make([]half.BF16, n)
	for i := range v {
		v[i] = half.BF16(rng.Uint32()%65535) + 1 // never 0, which is padding
	}
	return v
}

// packAll packs every matrix of a phase into a dirty image.
func packAll(t testing.TB, p *pipeline.Plan, layer int, length int64) (image []byte, sources [][]half.BF16) {
	image = make([]byte, length)
	for i := range image {
		image[i] = 0xEE
	}
	for i, m := range p.Matrices(layer) {
		sources = append(sources, random(m.Rows*m.K, uint64(i)+3))
		require.NoError(t, p.Pack(image, layer, i, pipeline.Permuted(sources[i], m.K, nil)))
	}
	return image, sources
}

func TestPackUnpackRoundTrip(t *testing.T) {
	for i, sms := range []int{1, 2, 3, 5, 12, 132, 1, 2, 3, 5, 12, 132} {
		p, err := pipeline.New(interleaved(sms, i/6*(1+i%4)))
		require.NoError(t, err)
		for layer, length := range map[int]int64{0: p.LayerBytes, 2: p.LayerBytes, pipeline.FinalLayer: p.FinalBytes} {
			image, sources := packAll(t, p, layer, length)
			zeros := 0
			for i := 0; i < len(image); i += 2 {
				if image[i] == 0 && image[i+1] == 0 {
					zeros++
				}
			}
			for i, m := range p.Matrices(layer) {
				got := make([]half.BF16, m.Rows*m.K)
				require.NoError(t, p.Unpack(got, image, layer, i))
				require.Equal(t, sources[i], got, "%s at %d SMs", m.Name, sms)
				zeros -= m.Tiles*8*m.KPadded - m.Rows*m.K
			}
			require.Zero(t, zeros, "padding is zeros, all of it and nothing else")
		}
	}
}

// TestPackedElementsLieWhereTheChunksSay reads the image through the chunk list, as the
// kernel does, knowing only the format of a tile group.
func TestPackedElementsLieWhereTheChunksSay(t *testing.T) {
	for _, most := range []int{0, 1, 2, 7, 64} {
		packedElementsLieWhereTheChunksSay(t, interleaved(5, most))
	}
}

func packedElementsLieWhereTheChunksSay(t *testing.T, r pipeline.Request) {
	p, err := pipeline.New(r)
	require.NoError(t, err)
	const layer = 1
	image, sources := packAll(t, p, layer, p.LayerBytes)
	seen := 0
	for sm := range p.SMs {
		for c := range p.LayerChunks(sm, layer) {
			m := p.Layer[c.Matrix]
			chunk := image[c.Offset-layer*p.LayerBytes:][:c.Bytes]
			for at := 0; at < c.Bytes; at += 2 {
				group, in := at/512, at%512
				row, unit := c.Tile*8+in/64, in%64/16^in/128
				column := c.K + group*32 + 8*unit + in%16/2
				want := half.BF16(0)
				if row < m.Rows && column < m.K {
					want = sources[c.Matrix][row*m.K+column]
					seen++
				}
				require.Equal(t, want, half.BF16At(chunk[at:]), "%s %d,%d", m.Name, row, column)
			}
		}
	}
	require.Equal(t, 43*150+8*32+333*33, seen)
}

// TestTileGroupIsTheBFragment multiplies through two m16n8k16 mmas with the fragment
// layouts of the PTX ISA ("Matrix Fragments for mma.m16n8k16 with floating point
// type"), lanes loading 16 consecutive bytes of both operands, and compares with the
// plain product.
func TestTileGroupIsTheBFragment(t *testing.T) {
	const rows, columns = 16, 32 // activations x[16][32], weights w[8][32]
	x, w := random(rows*columns, 5), random(8*columns, 6)
	var tile [pipeline.TileRows][]half.BF16
	for r := range tile {
		tile[r] = w[r*columns:][:columns]
	}
	packed := make([]byte, pipeline.GroupBytes)
	pipeline.PackTile(packed, &tile)

	var got [rows][8]uint64
	for mma := range 2 {
		var a [rows][16]uint64
		var b [16][8]uint64
		for lane := range 32 {
			g, q := lane/4, lane%4
			weights := packed[16*(lane^lane/8):][:16]
			for i := range 4 {
				k := 2*q + i%2 + 8*(i/2)
				b[k][g] = uint64(binary.LittleEndian.Uint16(weights[2*(4*mma+i):]))
				require.Equal(t, 8*q+4*mma+i, fragmentColumn(mma, k))
			}
			for i := range 8 { // a_i: row g or g+8, k as PTX says
				row, k := g+8*(i/2%2), 2*q+i%2+8*(i/4)
				// of the lane's 16 bytes of that row: elements 4·mma + 0, 1 for a0..a3, 2, 3 for a4..a7
				a[row][k] = uint64(x[row*columns+8*q+4*mma+i%2+2*(i/4)])
			}
		}
		for r := range rows {
			for n := range 8 {
				for k := range 16 {
					got[r][n] += a[r][k] * b[k][n]
				}
			}
		}
	}
	for r := range rows {
		for n := range 8 {
			want := uint64(0)
			for k := range columns {
				want += uint64(x[r*columns+k]) * uint64(w[n*columns+k])
			}
			require.Equal(t, want, got[r][n], "x row %d, w row %d", r, n)
		}
	}
}

func TestFragmentColumnsAreAPermutation(t *testing.T) {
	var seen []int
	for mma := range 2 {
		for k := range 16 {
			seen = append(seen, fragmentColumn(mma, k))
		}
	}
	slices.Sort(seen)
	for i, c := range seen {
		require.Equal(t, i, c)
	}
	require.Len(t, seen, pipeline.GroupK)
}

// TestPackTakesRowsInAnyOrder: gate and up interleaved row by row.
func TestPackTakesRowsInAnyOrder(t *testing.T) {
	const rows, k = 40, 64
	p, err := pipeline.New(pipeline.Request{SMs: 3, Layers: 1,
		Layer: []pipeline.Matrix{{Name: "gate_up", Rows: rows, K: k}}, SharedLimit: 65536})
	require.NoError(t, err)
	source := random(rows*k, 9) // gate, then up
	from := func(row int) int { return row%2*rows/2 + row/2 }
	image, got := make([]byte, p.LayerBytes), make([]half.BF16, rows*k)
	require.NoError(t, p.Pack(image, 0, 0, pipeline.Permuted(source, k, from)))
	require.NoError(t, p.Unpack(got, image, 0, 0))
	require.Equal(t, source[:k], got[:k])
	require.Equal(t, source[rows/2*k:][:k], got[k:2*k])
	require.Equal(t, source[(rows-1)*k:], got[(rows-1)*k:])
}

func TestPackAsksForEveryRowOnceAndLendsScratch(t *testing.T) {
	p, err := pipeline.New(odd(7))
	require.NoError(t, err)
	calls := make([]atomic.Int32, 333)
	image, got := make([]byte, p.LayerBytes), make([]half.BF16, 333*33)
	require.NoError(t, p.Pack(image, 0, 2, func(row int, scratch []half.BF16) ([]half.BF16, error) {
		calls[row].Add(1)
		if len(scratch) != 33 || cap(scratch) != 33 {
			return nil, fmt.Errorf("scratch of %d", len(scratch))
		}
		for i := range scratch {
			scratch[i] = half.BF16(row*33 + i)
		}
		return scratch, nil
	}))
	for row := range calls {
		require.EqualValues(t, 1, calls[row].Load(), "row %d", row)
	}
	require.NoError(t, p.Unpack(got, image, 0, 2))
	for i, v := range got {
		require.EqualValues(t, i, v)
	}
}

func TestPackRefusals(t *testing.T) {
	p, err := pipeline.New(odd(4))
	require.NoError(t, err)
	image := make([]byte, p.LayerBytes)
	good := pipeline.Permuted(make([]half.BF16, 333*33), 33, nil)
	for want, err := range map[string]error{
		"layer 3, want 0 to 2 or FinalLayer": p.Pack(image, 3, 2, good),
		"layer -2, want":                     p.Pack(image, -2, 2, good),
		"matrix 3 of layer 0, which has 3":   p.Pack(image, 0, 3, good),
		"matrix -1 of layer 0":               p.Pack(image, 0, -1, good),
		`image for "c" has 9 B, want`:        p.Pack(image[:9], 0, 2, good),
		`"c" row 0 has 32 columns, want 33`: p.Pack(image, 0, 2,
			pipeline.Permuted(make([]half.BF16, 333*33), 32, nil)),
		`"c" row 332: source row 332 of a matrix of 3`: p.Pack(image, 0, 2,
			pipeline.Permuted(make([]half.BF16, 332*33), 33, nil)),
		`"c" row 0: source row -1 of a matrix of 333 `: p.Pack(image, 0, 2,
			pipeline.Permuted(make([]half.BF16, 333*33), 33, func(row int) int { return row - 1 })),
		`"c" has 10989 elements, the destination 5`: p.Unpack(make([]half.BF16, 5), image, 0, 2),
	} {
		require.ErrorContains(t, err, want)
	}
}

func TestPackReportsTheLowestFailingRow(t *testing.T) {
	p, err := pipeline.New(odd(4))
	require.NoError(t, err)
	image, boom := make([]byte, p.LayerBytes), errors.New("boom")
	for range 50 {
		err := p.Pack(image, 0, 2, func(row int, scratch []half.BF16) ([]half.BF16, error) {
			if row >= 100 {
				return nil, boom
			}
			return scratch, nil
		})
		require.ErrorIs(t, err, boom)
		require.ErrorContains(t, err, "row 100")
	}
}

func BenchmarkPack(b *testing.B) {
	p, err := pipeline.New(pipeline.Request{SMs: 132, Layers: 1,
		Layer: []pipeline.Matrix{{Name: "w", Rows: 4096, K: 4096}}, SharedLimit: 232448})
	require.NoError(b, err)
	image, rows := make([]byte, p.LayerBytes), pipeline.Permuted(random(4096*4096, 1), 4096, nil)
	b.SetBytes(p.LayerBytes)
	for b.Loop() {
		require.NoError(b, p.Pack(image, 0, 0, rows))
	}
}

// fragmentColumn is the column, 0 to GroupK-1 within a k group, of logical k (0 to
// 15) of mma (0 or 1): see the package comment.
func fragmentColumn(mma, k int) int {
	return 8*(k%8/2) + 4*mma + 2*(k/8) + k%2
}

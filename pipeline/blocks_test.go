package pipeline_test

import (
	"fmt"
	"testing"

	"github.com/mkgen/mkgen/models/half"
	"github.com/mkgen/mkgen/pipeline"
	"github.com/stretchr/testify/require"
)

// TestBlocksCoverTheBufferInTheOrderOfTheChunks compares the blocks' tiles with the
// plan's chunk list, which the kernel follows.
func TestBlocksCoverTheBufferInTheOrderOfTheChunks(t *testing.T) {
	for i, sms := range []int{1, 5, 132, 1, 5, 7, 132} {
		p, err := pipeline.New(interleaved(sms, i/3*(1+i)))
		require.NoError(t, err)
		where := map[[4]int]int64{}
		for sm := range sms {
			for c := range p.Chunks(sm) {
				where[[4]int{c.Layer, c.Matrix, c.Tile, c.Part}] = c.Offset
			}
		}
		for _, most := range []int64{1, 3000, 20000, 1 << 30} {
			at, seen := int64(0), 0
			for _, b := range p.Blocks(most) {
				require.Equal(t, at, b.Offset)
				largest := int64(0)
				for _, piece := range b.Pieces {
					m := p.Matrices(piece.Layer)[piece.Matrix]
					require.Positive(t, piece.Tiles)
					for tile := range piece.Tiles {
						for part := range m.ChunksPerTile {
							is := where[[4]int{piece.Layer, piece.Matrix, piece.Tile + tile, part}]
							require.Equal(t, is, at+m.ChunkStart(tile, part)-m.Start, "%+v", piece)
							seen++
						}
					}
					at += int64(piece.Tiles) * m.TileBytes()
					largest = max(largest, m.TileBytes())
				}
				require.Equal(t, at, b.Offset+b.Bytes)
				require.LessOrEqual(t, b.Bytes, max(most, largest))
			}
			require.Equal(t, p.PackedBytes, at)
			require.Len(t, where, seen)
		}
		require.Len(t, p.Blocks(1<<30), 1, "small things share a block")
	}
}

func TestLayerBlocksCoverOneImage(t *testing.T) {
	p, err := pipeline.New(odd(3))
	require.NoError(t, err)
	for layer, bytes := range map[int]int64{0: p.LayerBytes, 2: p.LayerBytes, pipeline.FinalLayer: p.FinalBytes} {
		blocks := p.LayerBlocks(layer, 4096)
		require.Zero(t, blocks[0].Offset)
		last := blocks[len(blocks)-1]
		require.Equal(t, bytes, last.Offset+last.Bytes)
		for _, piece := range last.Pieces {
			require.Equal(t, layer, piece.Layer)
		}
	}
}

func TestPackRowsWritesWhatPackTileWrites(t *testing.T) {
	for _, k := range []int{1, 31, 32, 33, 64, 150, 4096} {
		for missing := range 3 { // rows of zeros at the end, as in a last tile
			bytes := (k + 31) / 32 * 512
			want, got := make([]byte, bytes), make([]byte, bytes)
			for i := range got {
				got[i] = 0xEE
			}
			var rows [pipeline.TileRows][]half.BF16
			var raw [pipeline.TileRows][]byte
			for r := range pipeline.TileRows - 3*missing {
				rows[r] = random(k, uint64(r))
				raw[r] = append(make([]byte, 0, 2*k+1), 0)[1:] // at an odd address
				for _, v := range rows[r] {
					raw[r] = v.Append(raw[r])
				}
			}
			pipeline.PackTile(want, &rows)
			pipeline.PackRows(got, &raw)
			require.Equal(t, want, got, "%d columns, %d rows missing", k, 3*missing)
		}
	}
}

// BenchmarkPackRows packs 256 MiB of rows, more than the caches hold, into a block
// of 16 MiB, on one core.
func BenchmarkPackRows(b *testing.B) {
	src, dst := make([]byte, 256<<20), make([]byte, 16<<20)
	for i := range src {
		src[i] = byte(i)
	}
	for _, k := range []int{2048, 4096, 14336} {
		b.Run(fmt.Sprint(k), func(b *testing.B) {
			tile := 16 * k
			b.SetBytes(int64(len(src) / tile * tile))
			for b.Loop() {
				for at := 0; at+tile <= len(src); at += tile {
					var rows [pipeline.TileRows][]byte
					for r := range rows {
						rows[r] = src[at+2*k*r:][:2*k]
					}
					pipeline.PackRows(dst[at%(len(dst)-tile)/512*512:][:tile], &rows)
				}
			}
		})
	}
}

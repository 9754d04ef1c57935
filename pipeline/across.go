package pipeline

import (
	"fmt"

	"github.com/mkgen/mkgen/models/half"
)

// A tile of a matrix that is dealt out by columns, and a group of it.
const (
	acrossColumns = TileRows / 2                   // of a tile: those that a row tile makes
	acrossRows    = GroupBytes / 2 / acrossColumns // of a group of 512 bytes
)

// AcrossColumns and AcrossRows are the columns of a tile, and the rows of a group, of a
// matrix that is dealt out by columns.
const (
	AcrossColumns = acrossColumns
	AcrossRows    = acrossRows
)

// Across is whether the matrix is dealt out by columns: its tiles are AcrossColumns columns
// of all rows.
func (m *MatrixPlan) Across() bool { return m.From != "" }

// AcrossOffset is where element (r, k) of a tile of such a matrix lies, from the tile's
// start, in bytes: r is a row, k (0 to 3) a column of the tile.
func AcrossOffset(r, k int) int {
	return r/64*GroupBytes + r%8*64 + r/8%2*32 + k/2*16 + r/16%4*4 + k%2*2
}

// checkFrom refuses a matrix that is dealt out by columns and does not follow one of those
// before it.
func (r *Request) checkFrom(at string, before []Matrix, m Matrix) error {
	if m.From == "" {
		return nil
	}
	if r.BatchTiles > 0 {
		return fmt.Errorf("%s: From is %q, but tiles are interleaved in batches of %d; want BatchTiles 0", at, m.From,
			r.BatchTiles)
	}
	var leader *Matrix
	for i := range before {
		if before[i].Name == m.From {
			leader = &before[i]
		}
		if before[i].From == m.From {
			return fmt.Errorf("%s: From is %q, which %q has, too; want one matrix", at, m.From, before[i].Name)
		}
	}
	switch {
	case leader == nil || leader.From != "":
		return fmt.Errorf("%s: From is %q, want a matrix before it in the list that is dealt out by rows", at, m.From)
	case leader.Rows != 2*m.K:
		return fmt.Errorf("%s: K is %d, want %d: half of the %d rows of %q, which make the columns", at, m.K, leader.Rows/2,
			leader.Rows, m.From)
	}
	return nil
}

// follow finds the matrix that each with From follows.
func follow(ms []MatrixPlan) {
	for i := range ms {
		for j := range i {
			if ms[i].Across() && ms[j].Name == ms[i].From {
				ms[i].leader = j
			}
		}
	}
}

// PackAcross writes one row into tiles of a matrix that is dealt out by columns: v are the
// row's columns of these tiles as they lie in a file, little-endian bf16 at any address,
// AcrossColumns a tile; the last tile's may be fewer, and nothing stands for the others.
// dst are the tiles, one after another, each of n bytes.
func PackAcross(dst []byte, tileBytes, row int, v []byte) {
	for tile := 0; len(v) > 0; tile++ {
		to := dst[tile*tileBytes:][:tileBytes]
		n := min(len(v), 2*acrossColumns)
		for k := 0; k < n; k += 2 {
			at := AcrossOffset(row, k/2)
			to[at], to[at+1] = v[k], v[k+1]
		}
		v = v[n:]
	}
}

// packAcross is Pack of a matrix that is dealt out by columns.
func (p *Plan) packAcross(dst []byte, m *MatrixPlan, rows Rows) error {
	tiles := dst[m.Start:][:m.Bytes()]
	clear(tiles)
	scratch, row := make([]half.BF16, m.K), make([]byte, 2*m.K)
	for r := range m.Rows {
		v, err := rows(r, scratch)
		if err != nil {
			return fmt.Errorf("pipeline: %q row %d: %w", m.Name, r, err)
		}
		if len(v) != m.K {
			return fmt.Errorf("pipeline: %q row %d has %d columns, want %d", m.Name, r, len(v), m.K)
		}
		for k, x := range v {
			x.Put(row[2*k:])
		}
		PackAcross(tiles, int(m.TileBytes()), r, row)
	}
	return nil
}

// unpackAcross is its inverse.
func (p *Plan) unpackAcross(dst []half.BF16, src []byte, m *MatrixPlan) {
	for k := range m.K {
		tile := src[m.ChunkStart(k/acrossColumns, 0):]
		for r := range m.Rows {
			dst[r*m.K+k] = half.BF16At(tile[AcrossOffset(r, k%acrossColumns):])
		}
	}
}

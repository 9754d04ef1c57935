package pipeline

// mostPieces bounds MatrixPlan.Pieces: who reads the product adds up as many parts of every row.
const mostPieces = 3

// piecesGain is by how much more even shares of pieces must be than those of whole tiles.
const piecesGain = 0.05

// choosePieces is into how many pieces the tiles of a matrix that may be split are cut: as few as make the shares of n
// SMs most even, 1 where that gains little. Pieces are whole chunks, of the same columns in every tile.
func choosePieces(m *MatrixPlan, n int) int {
	best := 1
	whole := m.Rows%TileRows == 0 && m.TailK == m.ChunkK && m.KPadded == m.K
	if !m.Split || !whole || m.Format.Of(m.K) != int(m.TileBytes()) {
		return best
	}
	even := evenShares(m.Tiles, n) + piecesGain
	for pieces := 2; pieces <= mostPieces; pieces++ {
		if e := evenShares(m.Tiles*pieces, n); m.ChunksPerTile%pieces == 0 && e > even {
			best, even = pieces, e
		}
	}
	return best
}

// evenShares is the mean of n shares of all over the largest.
func evenShares(all, n int) float64 { return float64(all) / float64(n) / float64(ceilDiv(all, n)) }

// PieceChunks is how many chunks a piece of a tile has.
func (m *MatrixPlan) PieceChunks() int { return m.ChunksPerTile / m.Pieces }

// PieceBytes is how far a piece of a tile lies from the next one in the packed buffer.
func (m *MatrixPlan) PieceBytes() int64 { return m.TileBytes() / int64(m.Pieces) }

// AllPieces is how many pieces of tiles there are, what Count adds up to.
func (m *MatrixPlan) AllPieces() int { return m.Tiles * m.Pieces }

// owned is what SMs own of the matrix.
func (m *MatrixPlan) owned() string {
	if m.Pieces > 1 {
		return "pieces"
	}
	return "tiles"
}

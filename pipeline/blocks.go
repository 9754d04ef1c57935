package pipeline

// Piece is a run of row tiles of one matrix that one SM owns: neighbours in the
// matrix and in the packed buffer. Where tiles are interleaved in batches it is whole
// batches, and MatrixPlan.ChunkStart says where in it the chunks lie.
type Piece struct {
	Layer  int // 0 to Layers-1, or FinalLayer
	Matrix int // index into Matrices(Layer)
	Tile   int // the first
	Tiles  int // at least 1
}

// Block is a stretch of the packed buffer that holds whole row tiles (whole batches
// of them, where they are interleaved): what one
// goroutine packs, and one copy takes to the device.
type Block struct {
	Offset, Bytes int64 // of the packed buffer, or of a layer's image: see Blocks, LayerBlocks
	Pieces        []Piece
}

// Blocks cuts the packed buffer into blocks in the order of their offsets, without
// gaps, of at most `most` bytes each, or of one tile (batch) where that is more.
func (p *Plan) Blocks(most int64) []Block {
	c := cutter{most: most}
	for layer := range p.Layers {
		c.layer(p, layer)
	}
	c.layer(p, FinalLayer)
	return c.blocks
}

// LayerBlocks is Blocks of one layer's image (FinalLayer: the final phase's);
// offsets count from the image's start.
func (p *Plan) LayerBlocks(layer int, most int64) []Block {
	c := cutter{most: most}
	c.layer(p, layer)
	return c.blocks
}

// cutter appends tiles to blocks in the order in which they lie in the buffer.
type cutter struct {
	most   int64
	at     int64
	blocks []Block
}

func (c *cutter) layer(p *Plan, layer int) {
	ms := p.Matrices(layer)
	for sm := range p.SMs {
		for i := range ms {
			c.tiles(Piece{layer, i, ms[i].First[sm], ms[i].Count[sm]}, ms[i].TileBytes(), max(1, ms[i].Batch))
		}
	}
}

// tiles appends a share in units of so many tiles, of which the last may be short.
func (c *cutter) tiles(p Piece, tile int64, unit int) {
	for left := p.Tiles; left > 0; left -= p.Tiles {
		if n := len(c.blocks); n == 0 || c.blocks[n-1].Bytes+int64(min(unit, left))*tile > c.most {
			c.blocks = append(c.blocks, Block{Offset: c.at})
		}
		b := &c.blocks[len(c.blocks)-1]
		p.Tiles = left
		if fit := (c.most - b.Bytes) / tile; fit < int64(left) {
			p.Tiles = min(left, max(1, int(fit)/unit)*unit)
		}
		b.Pieces = append(b.Pieces, p)
		b.Bytes += int64(p.Tiles) * tile
		c.at += int64(p.Tiles) * tile
		p.Tile += p.Tiles
	}
}

// PackRows writes one row tile from rows as they lie in a file: little-endian bf16
// at any address, each of 2·K bytes, or nil for a row of zeros. dst is 16 bytes a
// column, K rounded up to GroupK, long; shorter rows are padded with zeros.
func PackRows(dst []byte, rows *[TileRows][]byte) { PackColumns(dst, rows, 0) }

// PackColumns is PackRows of one chunk: columns first, a multiple of GroupK, and on,
// as many as dst has room for at 16 bytes each.
func PackColumns(dst []byte, rows *[TileRows][]byte, first int) {
	from, end := 2*first, 2*first+len(dst)/TileRows // bytes of a row
	whole := end                                    // up to there every row has full runs
	for _, v := range rows {
		whole = min(whole, max(from, len(v)/runBytes*runBytes))
	}
	for k := from; k < whole; k += runBytes {
		group := dst[(k-from)*TileRows:][:GroupBytes]
		for r := range rows {
			copy(group[r*runBytes:][:runBytes], rows[r][k:k+runBytes])
		}
	}
	for k := whole; k < end; k += runBytes {
		group := dst[(k-from)*TileRows:][:GroupBytes]
		for r, v := range rows {
			run := group[r*runBytes:][:runBytes]
			clear(run[copy(run, v[min(k, len(v)):]):])
		}
	}
}

// runBytes is a row's part of a tile group.
const runBytes = 2 * GroupK

package pipeline

// Piece is a run of row tiles of one matrix: neighbours in the matrix and in the packed
// buffer.
type Piece struct {
	Layer  int // 0 to Layers-1, or FinalLayer
	Matrix int // index into Matrices(Layer)
	Tile   int // the first
	Tiles  int // at least 1
}

// Block is a stretch of the packed buffer that holds whole row tiles: what one goroutine
// packs, and one copy takes to the device.
type Block struct {
	Offset, Bytes int64 // of the packed buffer, or of a layer's image: see Blocks, LayerBlocks
	Pieces        []Piece
}

// Blocks cuts the packed buffer into blocks in the order of their offsets, without
// gaps, of at most `most` bytes each, or of one tile where that is more.
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
	for i, m := range p.Matrices(layer) {
		c.tiles(Piece{layer, i, 0, m.Tiles}, m.TileBytes())
	}
}

// tiles appends a matrix's tiles.
func (c *cutter) tiles(p Piece, tile int64) {
	for left := p.Tiles; left > 0; left -= p.Tiles {
		if n := len(c.blocks); n == 0 || c.blocks[n-1].Bytes+tile > c.most {
			c.blocks = append(c.blocks, Block{Offset: c.at})
		}
		b := &c.blocks[len(c.blocks)-1]
		p.Tiles = min(left, max(1, int((c.most-b.Bytes)/tile)))
		b.Pieces = append(b.Pieces, p)
		b.Bytes += int64(p.Tiles) * tile
		c.at += int64(p.Tiles) * tile
		p.Tile += p.Tiles
	}
}

// PackRows writes one row tile from rows as they lie in a file: little-endian bf16
// at any address, each of 2·K bytes, or nil for a row of zeros. dst is 16 bytes a
// column, K rounded up to GroupK, long; shorter rows are padded with zeros.
func PackRows(dst []byte, rows *[TileRows][]byte) {
	for at := 0; at < len(dst); at += GroupBytes {
		group, from := dst[at:][:GroupBytes], at/TileRows
		for r, v := range rows {
			for u := range runUnits {
				to := group[unitOffset(r, u):][:unitBytes]
				if k := from + u*unitBytes; k+unitBytes <= len(v) {
					copy(to, v[k:k+unitBytes])
				} else {
					clear(to[copy(to, v[min(k, len(v)):]):])
				}
			}
		}
	}
}

// A row's part of a tile group is 64 bytes, in units of 16.
const (
	unitBytes = 16
	runUnits  = 2 * GroupK / unitBytes
)

// unitOffset is where unit u of row r lies in a tile group, in bytes: see the package comment.
func unitOffset(r, u int) int { return (r*runUnits + (u ^ r/2)) * unitBytes }

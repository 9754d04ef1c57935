package megakernel

import (
	"fmt"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/mkgen/mkgen/models/half"
	"github.com/mkgen/mkgen/pipeline"
)

// Reader is what Tensors may implement beside Row to be packed at full speed,
// as checkpoint.Checkpoint does. Reading calls f with a function that delivers
// one row as little-endian bf16 bytes, from the source itself or converted into
// scratch, which has the row's length; a row is valid until f returns or its
// scratch is used again. Reading returns f's error. It is called from several
// goroutines at a time, f's row from one.
type Reader interface {
	Reading(f func(row func(tensor string, row int, scratch []half.BF16) ([]byte, error)) error) error
}

// Coded is what Tensors may implement beside Row where the layers' matrices have codes of their own in the kernel's
// format, to be packed as they are, integers (pipeline.OwnFormats) or e4m3: Int4Row fills codes, of each column, and
// scales and zeros, of each scale group or block, with those of a row. It is called from several goroutines at a time.
type Coded interface {
	Int4Row(tensor string, row int, codes []int8, scales []float32, zeros []int8) error
}

// CodedHead is what Coded tensors may implement where the LM head may have codes of its own, too:
// HeadCoded reports whether it has, in the kernel's format of the head.
type CodedHead interface {
	Coded
	HeadCoded() bool
}

// headCoded is whether t has codes of the LM head.
func headCoded(t Tensors) bool {
	c, ok := t.(CodedHead)
	return ok && c.HeadCoded()
}

// Packer packs blocks of the buffer "weights". Not safe for concurrent use:
// every goroutine has its own.
type Packer struct {
	// CheckCodes refuses codes whose weights are not finite as bf16, by tensor and position.
	CheckCodes bool

	mk      *Kernel
	read    func(f func(row) error) error
	coded   Coded // of the layers' matrices; nil: they are rounded
	head    Coded // of the LM head
	scratch []half.BF16
	layer   int // of names
	origins []origin
	names   [][]string // of each matrix's parts, in that layer
}

// row is Reader's: one row of a tensor.
type row = func(tensor string, row int, scratch []half.BF16) ([]byte, error)

// NewPacker makes a packer that reads from t.
func (mk *Kernel) NewPacker(t Tensors) *Packer {
	p := &Packer{mk: mk, read: rowByRow(t), layer: noLayer}
	if r, ok := t.(Reader); ok {
		p.read = r.Reading
	}
	c, coded := t.(Coded)
	p.coded = mk.codesOf(c, coded, mk.Options.Weights, t)
	p.head = mk.codesOf(c, headCoded(t), mk.Options.Head, t)
	widest := 0
	for i := range planMatrices {
		widest = max(widest, mk.matrix(i).K)
		p.origins = append(p.origins, mk.origin(i))
	}
	p.scratch = make([]half.BF16, pipeline.TileRows*widest)
	return p
}

// codesOf are where the codes of matrices of a format come from: c where these have some; nil: they are rounded row by
// row.
func (mk *Kernel) codesOf(c Coded, coded bool, f pipeline.Format, t Tensors) Coded {
	switch {
	case coded && f != pipeline.FormatBF16:
		return c
	case f.Blocks():
		return mk.blocked(t)
	}
	return nil
}

// noLayer is no layer, not even pipeline.FinalLayer.
const noLayer = -2

// rowByRow is Reading of Tensors that have Row only.
func rowByRow(t Tensors) func(f func(row) error) error {
	read := func(tensor string, row int, scratch []half.BF16) ([]byte, error) {
		if err := t.Row(tensor, row, scratch); err != nil {
			return nil, err
		}
		out := make([]byte, 0, 2*len(scratch))
		for _, v := range scratch {
			out = v.Append(out)
		}
		return out, nil
	}
	return func(f func(row) error) error { return f(read) }
}

// Pack writes the block's bytes, b.Bytes of them, to dst. Padding is written as
// zeros. The error names the tensor.
func (p *Packer) Pack(dst []byte, b *pipeline.Block) error {
	if int64(len(dst)) != b.Bytes {
		return fmt.Errorf("megakernel: room for %d bytes of a block of %d", len(dst), b.Bytes)
	}
	return p.read(func(read row) error {
		rest := dst
		for i := range b.Pieces {
			piece := &b.Pieces[i]
			n, err := p.piece(rest, piece, read)
			if err != nil {
				return err
			}
			rest = rest[n:]
		}
		return nil
	})
}

// piece packs one piece and returns its length in bytes.
func (p *Packer) piece(dst []byte, piece *pipeline.Piece, read row) (int, error) {
	i, coded := piece.Matrix, p.coded
	if piece.Layer == pipeline.FinalLayer {
		i, coded = i+layerMatrices, p.head
	}
	m, o, names := p.mk.matrix(i), &p.origins[i], p.namesOf(piece.Layer)[i]
	size := int(m.TileBytes())
	if m.Across() {
		return piece.Tiles * size, p.across(dst[:piece.Tiles*size], piece, m, o, names, read)
	}
	if coded != nil && m.Format.Bits() < 16 {
		return piece.Tiles * size, p.codedTiles(coded, dst, piece, m, o, names)
	}
	for n := range piece.Tiles {
		first := (piece.Tile + n) * pipeline.TileRows
		var rows [pipeline.TileRows][]byte
		for r := range min(pipeline.TileRows, m.Rows-first) {
			which, row := o.find(first + r)
			v, err := read(names[which], row, p.scratch[r*m.K:][:m.K:m.K])
			if err != nil {
				return 0, err
			}
			if len(v) != 2*m.K {
				return 0, fmt.Errorf("megakernel: %s row %d has %d bytes, want %d", names[which], row, len(v), 2*m.K)
			}
			rows[r] = v
		}
		m.PackRows(dst[n*size:][:size], &rows)
	}
	return piece.Tiles * size, nil
}

// codedTiles packs a piece whose codes there are.
func (p *Packer) codedTiles(from Coded, dst []byte, piece *pipeline.Piece, m *pipeline.MatrixPlan, o *origin,
	names []string) error {
	groups, size := m.Format.Scales(m.K), int(m.TileBytes())
	for n := range piece.Tiles {
		first := (piece.Tile + n) * pipeline.TileRows
		var rows [pipeline.TileRows]*pipeline.Int4Row
		for r := range min(pipeline.TileRows, m.Rows-first) {
			which, row := o.find(first + r)
			v := &pipeline.Int4Row{Codes: make([]int8, m.K), Scales: make([]float32, groups), Zeros: make([]int8, groups)}
			if err := from.Int4Row(names[which], row, v.Codes, v.Scales, v.Zeros); err != nil {
				return err
			}
			if p.CheckCodes {
				if column, weight := m.Format.NotFinite(v); column >= 0 {
					return fmt.Errorf("%s: found %v at [%d, %d], want finite weights", names[which], weight, row, column)
				}
			}
			rows[r] = v
		}
		if err := m.PackCoded(dst[n*size:][:size], &rows); err != nil {
			return fmt.Errorf("%s: %w", strings.Join(names, ", "), err)
		}
	}
	return nil
}

// across packs a piece of a matrix that is dealt out by columns, for which all its rows are
// read: as often as there are pieces.
func (p *Packer) across(dst []byte, piece *pipeline.Piece, m *pipeline.MatrixPlan, o *origin, names []string,
	read row) error {
	clear(dst)
	first := 2 * pipeline.AcrossColumns * piece.Tile // bytes of a row
	end := min(first+2*pipeline.AcrossColumns*piece.Tiles, 2*m.K)
	for r := range m.Rows {
		which, row := o.find(r)
		v, err := read(names[which], row, p.scratch[:m.K:m.K])
		if err != nil {
			return err
		}
		if len(v) != 2*m.K {
			return fmt.Errorf("megakernel: %s row %d has %d bytes, want %d", names[which], row, len(v), 2*m.K)
		}
		pipeline.PackAcross(dst, int(m.TileBytes()), r, v[first:end])
	}
	return nil
}

// Embeddings writes rows of the token embeddings, from row first on, as the buffer
// BufferEmbed has them: as many as dst, a multiple of 2·Hidden bytes, has room for.
func (p *Packer) Embeddings(dst []byte, first int) error {
	hidden, tensor := p.mk.Config.Hidden, p.mk.embedTensor()
	return p.read(func(read row) error {
		for at := 0; at < len(dst); at += 2 * hidden {
			v, err := read(tensor, first+at/(2*hidden), p.scratch[:hidden:hidden])
			if err != nil {
				return err
			}
			if copy(dst[at:], v) != 2*hidden {
				return fmt.Errorf("megakernel: %s row %d has %d bytes, want %d", tensor, first+at/(2*hidden), len(v), 2*hidden)
			}
		}
		return nil
	})
}

// namesOf are the tensors of a layer, made once a layer.
func (p *Packer) namesOf(layer int) [][]string {
	if layer == p.layer {
		return p.names
	}
	p.layer, p.names = layer, nil
	for i := range p.origins {
		var names []string
		for _, part := range p.origins[i].parts {
			names = append(names, TensorName(part.tensor, layer))
		}
		p.names = append(p.names, names)
	}
	return p.names
}

// TensorName puts a layer's number into a tensor's name with %d; other names stay.
func TensorName(format string, layer int) string {
	return strings.Replace(format, "%d", fmt.Sprint(layer), 1)
}

// layerBlock is how many bytes one goroutine of PackLayer takes at a time.
const layerBlock = 1 << 20

// PackLayer writes one layer's image (Plan.LayerBytes long) of the buffer
// "weights"; layer pipeline.FinalLayer is the LM head's (FinalBytes long). All
// processors work on it.
func (mk *Kernel) PackLayer(dst []byte, layer int, t Tensors) error {
	want := mk.Plan.LayerBytes
	if layer == pipeline.FinalLayer {
		want = mk.Plan.FinalBytes
	} else if layer < 0 || layer >= mk.Plan.Layers {
		return fmt.Errorf("megakernel: layer %d, want 0 to %d or FinalLayer", layer, mk.Plan.Layers-1)
	}
	if int64(len(dst)) != want {
		return fmt.Errorf("megakernel: room for %d bytes of layer %d, whose image has %d", len(dst), layer, want)
	}
	blocks := mk.Plan.LayerBlocks(layer, layerBlock)
	errs := make([]error, len(blocks))
	var next atomic.Int64
	var wg sync.WaitGroup
	for range min(runtime.GOMAXPROCS(0), len(blocks)) {
		wg.Go(func() {
			p := mk.NewPacker(t)
			for i := int(next.Add(1) - 1); i < len(blocks); i = int(next.Add(1) - 1) {
				b := &blocks[i]
				if errs[i] = p.Pack(dst[b.Offset:][:b.Bytes], b); errs[i] != nil {
					next.Store(int64(len(blocks)))
				}
			}
		})
	}
	wg.Wait()
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

package pipeline

import (
	"encoding/binary"
	"fmt"
	"math"
	"runtime"
	"sync"
	"sync/atomic"

	"github.com/mkgen/mkgen/models/half"
)

// Rows delivers row `row` (0 to Rows-1, in the order of the plan) of a matrix as K
// bf16 bit patterns. It may fill and return scratch, which has length K and belongs
// to the caller's goroutine, or return memory of its own, which is only read. It is
// called once for every row, from several goroutines at a time.
type Rows func(row int, scratch []half.BF16) ([]half.BF16, error)

// Permuted is the Rows of a row-major matrix of k columns held in memory, its row r
// being row source(r) of data. A nil source means the rows are in the plan's order.
// A row outside of data is an error when it is asked for.
func Permuted(data []half.BF16, k int, source func(row int) int) Rows {
	return func(row int, _ []half.BF16) ([]half.BF16, error) {
		from := row
		if source != nil {
			from = source(row)
		}
		if from < 0 || k < 1 || from >= len(data)/k {
			return nil, fmt.Errorf("source row %d of a matrix of %d rows", from, len(data)/max(k, 1))
		}
		return data[from*k : (from+1)*k], nil
	}
}

// Pack writes one matrix into the packed image of its layer: dst is all of a layer
// (LayerBytes long) or, for FinalLayer, of the final phase (FinalBytes long), so that
// a model larger than the host's memory can be packed a layer at a time; layer 0 and
// layer 7 have the same image layout. matrix is the index into Layer or Final. The
// values are little-endian; padding is written as zeros; the other matrices' bytes
// are left alone. All processors work on it. The error names matrix and row.
func (p *Plan) Pack(dst []byte, layer, matrix int, rows Rows) error {
	m, err := p.window(len(dst), layer, matrix)
	if err != nil {
		return err
	}
	if m.Across() {
		return p.packAcross(dst, m, rows)
	}
	return eachTile(m, func() func(tile int) error {
		buf := make([]half.BF16, TileRows*m.K)
		return func(tile int) error {
			var t [TileRows][]half.BF16
			for r := range min(TileRows, m.Rows-tile*TileRows) {
				row := tile*TileRows + r
				v, err := rows(row, buf[r*m.K:(r+1)*m.K:(r+1)*m.K])
				if err != nil {
					return fmt.Errorf("pipeline: %q row %d: %w", m.Name, row, err)
				}
				if len(v) != m.K {
					return fmt.Errorf("pipeline: %q row %d has %d columns, want %d", m.Name, row, len(v), m.K)
				}
				t[r] = v
			}
			to := dst[m.ChunkStart(tile, 0):][:m.TileBytes()]
			if m.Format.Parts() > 1 {
				m.PackRows(to, rawRows(&t))
			} else {
				PackTile(to, &t)
			}
			return nil
		}
	})
}

// Unpack is the inverse of Pack, but for what a format rounds: it reads one matrix out of the image of its layer
// into dst, row-major without padding, Rows·K long.
func (p *Plan) Unpack(dst []half.BF16, src []byte, layer, matrix int) error {
	m, err := p.window(len(src), layer, matrix)
	if err != nil {
		return err
	}
	if len(dst) != m.Rows*m.K {
		return fmt.Errorf("pipeline: %q has %d elements, the destination %d", m.Name, m.Rows*m.K, len(dst))
	}
	if m.Across() {
		p.unpackAcross(dst, src, m)
		return nil
	}
	return eachTile(m, func() func(tile int) error {
		return func(tile int) error {
			image := src[m.ChunkStart(tile, 0):]
			for r := range min(TileRows, m.Rows-tile*TileRows) {
				row := dst[(tile*TileRows+r)*m.K:][:m.K]
				if shape, ok := m.Format.Int4(m.K); ok {
					m.Format.unpackInt4(row, image, shape, r)
					continue
				}
				for k := range row {
					if m.Format.Blocks() {
						row[k] = half.ExactBF16(blockElement(image, r, k))
						continue
					}
					if m.Format == FormatE4M3 {
						scale := math.Float32frombits(binary.LittleEndian.Uint32(image[m.Format.Of(m.KPadded)+4*r:]))
						row[k] = half.ExactBF16(FromE4M3(image[E4M3Offset(r, k)]) * scale)
						continue
					}
					row[k] = half.BF16At(image[TileOffset(r, k):])
				}
			}
			return nil
		}
	})
}

// rawRows are rows as they lie in a file.
func rawRows(t *[TileRows][]half.BF16) *[TileRows][]byte {
	var raw [TileRows][]byte
	for r, v := range t {
		for _, x := range v {
			raw[r] = x.Append(raw[r])
		}
	}
	return &raw
}

// PackTile writes one row tile. Every row has the same number of columns K, or is nil
// for a row of zeros; dst is 16 bytes a column, K rounded up to GroupK, long.
func PackTile(dst []byte, rows *[TileRows][]half.BF16) {
	for at := 0; at < len(dst); at += GroupBytes {
		group, from := dst[at:][:GroupBytes], at/TileRows/2
		for r, v := range rows {
			for u := range runUnits {
				packUnit((*[unitBytes]byte)(group[unitOffset(r, u):]), v[min(from+u*unitBytes/2, len(v)):])
			}
		}
	}
}

// packUnit writes 8 elements, zeros behind the last of v.
func packUnit(dst *[unitBytes]byte, v []half.BF16) {
	if len(v) < unitBytes/2 {
		clear(dst[:])
		for i, x := range v {
			x.Put(dst[2*i:])
		}
		return
	}
	for i := 0; i < unitBytes/2; i += 4 { // four at a time: one load and one store on a little-endian machine
		four := uint64(v[i]) | uint64(v[i+1])<<16 | uint64(v[i+2])<<32 | uint64(v[i+3])<<48
		binary.LittleEndian.PutUint64(dst[2*i:], four)
	}
}

// TileOffset is where element (r, k) of a tile or chunk lies, from its start, in bytes.
func TileOffset(r, k int) int {
	return k/GroupK*GroupBytes + unitOffset(r, k%GroupK*2/unitBytes) + k*2%unitBytes
}

// window finds a matrix and checks the length of its layer's image.
func (p *Plan) window(have, layer, matrix int) (*MatrixPlan, error) {
	if layer < FinalLayer || layer >= p.Layers {
		return nil, fmt.Errorf("pipeline: layer %d, want 0 to %d or FinalLayer", layer, p.Layers-1)
	}
	ms, want := p.Matrices(layer), p.LayerBytes
	if layer == FinalLayer {
		want = p.FinalBytes
	}
	if matrix < 0 || matrix >= len(ms) {
		return nil, fmt.Errorf("pipeline: matrix %d of layer %d, which has %d", matrix, layer, len(ms))
	}
	if int64(have) != want {
		return nil, fmt.Errorf("pipeline: the packed image for %q has %d B, want %d", ms[matrix].Name, have, want)
	}
	return &ms[matrix], nil
}

// eachTile calls a worker's function for every tile of m, blocks of tiles handed out in ascending order to as many
// workers as there are processors. The error returned is that of the lowest tile that fails: no block below a failing
// one is skipped.
func eachTile(m *MatrixPlan, worker func() func(tile int) error) error {
	const block = 16
	var (
		next   atomic.Int64
		failed atomic.Bool
		wg     sync.WaitGroup
		mu     sync.Mutex
		at     int
		first  error
	)
	run := func() {
		do := worker()
		for !failed.Load() {
			from := int(next.Add(1)-1) * block
			for tile := from; tile < min(from+block, m.Tiles); tile++ {
				if err := do(tile); err != nil {
					failed.Store(true)
					mu.Lock()
					if first == nil || tile < at {
						at, first = tile, err
					}
					mu.Unlock()
					return
				}
			}
			if from+block >= m.Tiles {
				return
			}
		}
	}
	for range min(runtime.GOMAXPROCS(0), CeilDiv(m.Tiles, block)) {
		wg.Go(run)
	}
	wg.Wait()
	return first
}

package pipeline

import (
	"encoding/binary"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
)

// Rows delivers row `row` (0 to Rows-1, in the order of the plan) of a matrix as K
// bf16 bit patterns. It may fill and return scratch, which has length K and belongs
// to the caller's goroutine, or return memory of its own, which is only read. It is
// called once for every row, from several goroutines at a time.
type Rows func(row int, scratch []uint16) ([]uint16, error)

// Permuted is the Rows of a row-major matrix of k columns held in memory, its row r
// being row source(r) of data. A nil source means the rows are in the plan's order.
// A row outside of data is an error when it is asked for.
func Permuted(data []uint16, k int, source func(row int) int) Rows {
	return func(row int, _ []uint16) ([]uint16, error) {
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
	base := p.Start(layer, 0)
	if m.Across() {
		return p.packAcross(dst, layer, m, rows)
	}
	return eachTile(m, p.SMs, func() func(sm, tile int) error {
		buf := make([]uint16, TileRows*m.K)
		packed := make([]byte, m.TileBytes())
		return func(sm, tile int) error {
			var t [TileRows][]uint16
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
			image := dst[p.Start(layer, sm)+m.Offset[sm]-base:]
			if m.Batch == 0 {
				PackTile(image[m.ChunkStart(m.Count[sm], tile-m.First[sm], 0):][:m.TileBytes()], &t)
				return nil
			}
			PackTile(packed, &t)
			for part := range m.ChunksPerTile {
				at := m.ChunkStart(m.Count[sm], tile-m.First[sm], part)
				chunk := packed[part*m.ChunkK*TileRows*2:]
				copy(image[at:], chunk[:m.ChunkColumns(part)*TileRows*2])
			}
			return nil
		}
	})
}

// Unpack is the inverse of Pack: it reads one matrix out of the image of its layer
// into dst, row-major without padding, Rows·K long.
func (p *Plan) Unpack(dst []uint16, src []byte, layer, matrix int) error {
	m, err := p.window(len(src), layer, matrix)
	if err != nil {
		return err
	}
	if len(dst) != m.Rows*m.K {
		return fmt.Errorf("pipeline: %q has %d elements, the destination %d", m.Name, m.Rows*m.K, len(dst))
	}
	if m.Across() {
		p.unpackAcross(dst, src, layer, m)
		return nil
	}
	base := p.Start(layer, 0)
	return eachTile(m, p.SMs, func() func(sm, tile int) error {
		return func(sm, tile int) error {
			image := src[p.Start(layer, sm)+m.Offset[sm]-base:]
			for r := range min(TileRows, m.Rows-tile*TileRows) {
				row := dst[(tile*TileRows+r)*m.K:][:m.K]
				for k := range row {
					at := m.ChunkStart(m.Count[sm], tile-m.First[sm], k/m.ChunkK) + int64(tileOffset(r, k%m.ChunkK))
					row[k] = binary.LittleEndian.Uint16(image[at:])
				}
			}
			return nil
		}
	})
}

// PackTile writes one row tile. Every row has the same number of columns K, or is nil
// for a row of zeros; dst is 16 bytes a column, K rounded up to GroupK, long.
func PackTile(dst []byte, rows *[TileRows][]uint16) {
	for k := 0; len(dst) >= GroupBytes; k += GroupK {
		for r, v := range rows { // the group's 8 runs, one after another
			run := (*[2 * GroupK]byte)(dst[2*GroupK*r:])
			if k+GroupK <= len(v) {
				packRun(run, (*[GroupK]uint16)(v[k:]))
				continue
			}
			clear(run[:])
			for i := k; i < len(v); i++ {
				binary.LittleEndian.PutUint16(run[2*(i-k):], v[i])
			}
		}
		dst = dst[GroupBytes:]
	}
}

// packRun writes 32 elements, four at a time (the compiler makes that one load and
// one store on a little-endian machine).
func packRun(dst *[2 * GroupK]byte, v *[GroupK]uint16) {
	for i := 0; i < GroupK; i += 4 {
		four := uint64(v[i]) | uint64(v[i+1])<<16 | uint64(v[i+2])<<32 | uint64(v[i+3])<<48
		binary.LittleEndian.PutUint64(dst[2*i:2*i+8], four)
	}
}

// tileOffset is where element (r, k) of a tile or chunk lies, from its start.
func tileOffset(r, k int) int { return k/GroupK*GroupBytes + r*GroupK*2 + k%GroupK*2 }

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

// eachTile calls a worker's function for every tile of m with its owner, blocks of
// tiles handed out in ascending order to as many workers as there are processors.
// The error returned is that of the lowest tile that fails: no block below a failing
// one is skipped.
func eachTile(m *MatrixPlan, sms int, worker func() func(sm, tile int) error) error {
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
		sm := 0
		for !failed.Load() {
			from := int(next.Add(1)-1) * block
			for tile := from; tile < min(from+block, m.Tiles); tile++ {
				for tile >= m.First[sm]+m.Count[sm] {
					sm++
				}
				if err := do(sm, tile); err != nil {
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
	for range min(runtime.GOMAXPROCS(0), ceilDiv(m.Tiles, block)) {
		wg.Go(run)
	}
	wg.Wait()
	return first
}

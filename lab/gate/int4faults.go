package gate

import (
	"encoding/binary"
	"errors"
	"fmt"
	"slices"

	"github.com/mkgen/mkgen/megakernel"
	"github.com/mkgen/mkgen/pipeline"
	"github.com/mkgen/mkgen/pipeline/i4"
)

// Faults of weights of 4 and 8 bits, of the middle layer's down projection, or where that has other weights of the
// nearest matrix before it that can have the fault.
const (
	// each group has the scale of the group beside it; a row of one group the row's beside it; of an f32 twice its own
	// where the two are alike
	ScaleOfNeighbour = "scale_of_neighbour"
	ZeroPointOff     = "zero_point_off_by_one" // zero points are one too small
	// the scales of each row's last block are 0; of e4m3 with blocks those of the last block of columns
	ScalesNotCopied = "scales_not_copied"
	NibblesSwapped  = "nibbles_swapped" // low and high nibbles have changed places
	HalvesSwapped   = "halves_swapped"  // of 8 bits: the halves of each block have
	// high and low bytes of the input of integers have: in the kernel, of all layers; with several rows of 4 bits, whose
	// input is f16, the input of both halves of each block
	BytesExchanged = "bytes_exchanged"
)

// formatFaults lists those that are planted in the packed weights of a kernel.
func formatFaults(mk *megakernel.Kernel) (names []string) {
	for _, name := range []string{ScaleOfNeighbour, ScalesNotCopied, NibblesSwapped, HalvesSwapped, ZeroPointOff} {
		if mk.FaultMatrix(canHave(name)) >= 0 {
			names = append(names, name)
		}
	}
	return names
}

// canHave returns which formats can have one of formatFaults.
func canHave(name string) func(f pipeline.Format) bool {
	return func(f pipeline.Format) bool {
		switch name {
		case NibblesSwapped:
			return f.Integers() && f.Bits() == 4
		case HalvesSwapped:
			return f.Integers() && f.Bits() == 8
		case ZeroPointOff:
			return f.Zeros()
		}
		return f.Bits() < 16
	}
}

// spoilWeights plants one of formatFaults while run runs.
func spoilWeights(mk *megakernel.Kernel, w megakernel.Tensors,
	write func(buffer string, offset int64, src []byte) error, name string,
	run func() (Result, error)) (r Result, err error) {
	layer, m := mk.Config.Layers/2, &mk.Plan.Layer[mk.FaultMatrix(canHave(name))]
	image := make([]byte, mk.Plan.LayerBytes)
	if err := mk.PackLayer(image, layer, w); err != nil {
		return r, err
	}
	own, at := image[m.Start:][:m.Bytes()], mk.Plan.Image(layer)+m.Start
	spoilt := slices.Clone(own)
	for tile := 0; tile < len(own); tile += int(m.TileBytes()) {
		spoilTile(m, spoilt[tile:][:m.TileBytes()], own[tile:][:m.TileBytes()], name)
	}
	if slices.Equal(own, spoilt) {
		return r, fmt.Errorf("%s changes nothing", name)
	}
	if err := write("weights", at, spoilt); err != nil {
		return r, err
	}
	r, err = run()
	return r, errors.Join(err, write("weights", at, own))
}

// takeScale is ScaleOfNeighbour of a scale in f32. Random weights have powers of two for scales, most of them alike.
func takeScale(scale, own, beside []byte) {
	taken, right := binary.LittleEndian.Uint32(beside), binary.LittleEndian.Uint32(own)
	if taken == right {
		taken = right + 1<<23
	}
	binary.LittleEndian.PutUint32(scale, taken)
}

// spoilFloats is spoilTile of e4m3.
func spoilFloats(m *pipeline.MatrixPlan, tile, own []byte, name string) {
	at := func(i int) int { return m.Format.Of(m.KPadded) + 4*i } // of row i
	count, next := pipeline.TileRows, func(i int) int { return i ^ 1 }
	if m.Format.Blocks() {
		blocks := (m.K + pipeline.BlockSize - 1) / pipeline.BlockSize
		at = func(i int) int { // of the even rows, and then of the odd ones
			_, scale := pipeline.E4M3BlockOffset(i/blocks, i%blocks*pipeline.BlockSize)
			return scale
		}
		count, next = 2*blocks, func(i int) int { return i/blocks*blocks + (i%blocks+1)%blocks }
	}
	for i := range count {
		scale := tile[at(i):][:4]
		last := !m.Format.Blocks() || (i+1)%(count/2) == 0
		switch {
		case name == ScalesNotCopied && last:
			clear(scale)
		case name == ScaleOfNeighbour:
			takeScale(scale, own[at(i):], own[at(next(i)):])
		}
	}
}

// spoilTile plants a fault in a tile of which own are the right bytes.
func spoilTile(m *pipeline.MatrixPlan, tile, own []byte, name string) {
	if !m.Format.Integers() {
		spoilFloats(m, tile, own, name)
		return
	}
	shape, _ := m.Format.Int4(m.K)
	runs := (len(tile) - m.Format.ScaleBytes()) / shape.RunBytes()
	if name == NibblesSwapped || name == HalvesSwapped {
		half := shape.BlockBytes() / 2
		for run := range runs {
			codes, right := tile[run*shape.RunBytes():][:shape.Run*shape.BlockBytes()], own[run*shape.RunBytes():]
			for i, b := range right[:len(codes)] {
				if shape.Wide {
					codes[i^half] = b
				} else {
					codes[i] = b<<4 | b>>4
				}
			}
		}
		return
	}
	if shape.PerBlock() == 0 { // a scale a row, behind the runs
		scales, right := tile[runs*shape.RunBytes():], own[runs*shape.RunBytes():]
		for r := range i4.Rows {
			if name == ScalesNotCopied {
				clear(scales[4*r:][:4])
			} else {
				takeScale(scales[4*r:][:4], right[4*r:], right[4*(r^1):])
			}
		}
		return
	}
	groups := (m.K + shape.Group - 1) / shape.Group
	entry := func(b []byte, r, g int) []byte {
		per := shape.RowEntries()
		return b[g/per*shape.RunBytes()+shape.Entry(r, g%per):][:shape.EntryBytes()]
	}
	for r := range i4.Rows {
		for g := range groups {
			e := entry(tile, r, g)
			scale := e[:min(len(e), 2)]
			switch {
			case name == ScaleOfNeighbour && groups > 1:
				copy(scale, entry(own, r, (g+1)%groups))
			case name == ScaleOfNeighbour:
				copy(scale, entry(own, r^1, g))
			case name == ScalesNotCopied && g/shape.PerBlock() == (groups-1)/shape.PerBlock():
				clear(scale)
			case name == ZeroPointOff:
				binary.LittleEndian.PutUint16(e[2:], binary.LittleEndian.Uint16(e[2:])+uint16(shape.Times()))
			}
		}
	}
}

package megakernel

import (
	"sync"

	"github.com/mkgen/mkgen/models/half"
	"github.com/mkgen/mkgen/pipeline"
)

// blocked are tensors of bf16 with codes of e4m3 and a scale for each block of a tensor, which its largest magnitude
// makes (pipeline.E4M3Scale). It reads the rows of blocks side by side once and remembers their scales, since a
// tensor's rows are asked for one after another. Safe for several goroutines, as Tensors are.
type blocked struct {
	Tensors
	shapes map[string][]int // of all matrices

	mu     sync.Mutex
	scales map[blockRow]func() ([]float32, error)
}

// blockRow is blocks of a tensor side by side, from the first of a row.
type blockRow struct {
	tensor string
	number int
}

// blocked are t's.
func (mk *Kernel) blocked(t Tensors) *blocked {
	b := &blocked{Tensors: t, shapes: map[string][]int{}, scales: map[blockRow]func() ([]float32, error){}}
	for _, stored := range mk.Config.Stored() {
		if !stored.First.Vector {
			b.shapes[stored.Name] = stored.Shape
		}
	}
	return b
}

// of are the scales of a row's blocks. Its tensor is a matrix.
func (b *blocked) of(tensor string, row int) ([]float32, error) {
	at := blockRow{tensor, row / pipeline.BlockSize}
	b.mu.Lock()
	scales, ok := b.scales[at]
	if !ok {
		scales = sync.OnceValues(func() ([]float32, error) { return b.read(at) })
		b.scales[at] = scales
	}
	b.mu.Unlock()
	return scales()
}

// read makes the scales of blocks from their tensor's rows.
func (b *blocked) read(at blockRow) ([]float32, error) {
	shape := b.shapes[at.tensor]
	first := at.number * pipeline.BlockSize
	all, scales := make([]half.BF16, shape[1]), make([]float32, pipeline.CeilDiv(shape[1], pipeline.BlockSize))
	for r := first; r < min(first+pipeline.BlockSize, shape[0]); r++ {
		if err := b.Tensors.Row(at.tensor, r, all); err != nil {
			return nil, err
		}
		pipeline.MostOfBlocks(scales, all)
	}
	for g, most := range scales {
		scales[g] = pipeline.E4M3Scale(most)
	}
	return scales, nil
}

// Int4Row is Coded's.
func (b *blocked) Int4Row(tensor string, row int, codes []int8, scales []float32, _ []int8) error {
	of, err := b.of(tensor, row)
	if err != nil {
		return err
	}
	v := make([]half.BF16, len(codes))
	if err := b.Tensors.Row(tensor, row, v); err != nil {
		return err
	}
	copy(scales, of)
	pipeline.E4M3BlockCodes(codes, v, of)
	return nil
}

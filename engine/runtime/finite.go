package runtime

import (
	"context"
	"fmt"

	"github.com/mkgen/mkgen/megakernel"
	"github.com/mkgen/mkgen/models/half"
)

// checker is a source of tensors that can look at all of them itself.
type checker interface {
	Check(ctx context.Context, progress func(done, total int64)) error
}

// check refuses weights that are not finite: at once, or, where the source cannot
// do that, as they are packed.
func (l *load) check() error {
	c, ok := l.t.(checker)
	if !ok {
		r, blocks := l.t.(megakernel.Reader)
		c, coded := l.t.(megakernel.Coded)
		switch {
		case blocks && coded:
			l.t, l.checkCodes = finiteCodes{finiteBlocks{finite{l.t}, r}, c}, true
		case blocks:
			l.t = finiteBlocks{finite{l.t}, r}
		default:
			l.t = finite{l.t}
		}
		return nil
	}
	copied := l.total
	err := c.Check(l.ctx, func(done, total int64) {
		l.done, l.total = done, total+copied
		l.tell()
	})
	return err
}

// finite are tensors that refuse to deliver a row with a NaN or an infinity.
type finite struct{ t megakernel.Tensors }

func (f finite) Row(tensor string, row int, dst []half.BF16) error {
	if err := f.t.Row(tensor, row, dst); err != nil {
		return err
	}
	for i, v := range dst {
		if err := finiteAt(v, tensor, row, i); err != nil {
			return err
		}
	}
	return nil
}

// finiteAt refuses a bf16 that is not finite.
func finiteAt(v half.BF16, tensor string, row, i int) error {
	if v.IsFinite() {
		return nil
	}
	return fmt.Errorf("%s: found %v at [%d, %d], want finite weights", tensor, v.Float32(), row, i)
}

// finiteBlocks are finite tensors that are read in blocks of rows.
type finiteBlocks struct {
	finite
	r megakernel.Reader
}

// Reading is megakernel.Reader's.
func (f finiteBlocks) Reading(use func(row func(string, int, []half.BF16) ([]byte, error)) error) error {
	return f.r.Reading(func(read func(string, int, []half.BF16) ([]byte, error)) error {
		return use(func(tensor string, row int, scratch []half.BF16) ([]byte, error) {
			data, err := read(tensor, row, scratch)
			if err != nil {
				return nil, err
			}
			for i := range len(data) / 2 {
				if err := finiteAt(half.BF16At(data[2*i:]), tensor, row, i); err != nil {
					return nil, err
				}
			}
			return data, nil
		})
	})
}

// finiteCodes are finiteBlocks with codes, which a megakernel.Packer checks: it knows their format.
type finiteCodes struct {
	finiteBlocks
	megakernel.Coded
}

// HeadCoded is megakernel.CodedHead's: the LM head has the codes that it has without the check.
func (f finiteCodes) HeadCoded() bool {
	h, ok := f.Coded.(megakernel.CodedHead)
	return ok && h.HeadCoded()
}

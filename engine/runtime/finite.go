package runtime

import (
	"context"
	"fmt"
	"math"

	"github.com/mkgen/mkgen/megakernel"
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
		l.t = finite{l.t}
		return nil
	}
	copied := l.total
	err := c.Check(l.ctx, func(done, total int64) {
		l.done, l.total = done, total+copied
		if l.progress != nil {
			l.progress(l.done, l.total)
		}
	})
	return err
}

// finite are tensors that refuse to deliver a row with a NaN or an infinity.
type finite struct{ t megakernel.Tensors }

func (f finite) Row(tensor string, row int, dst []uint16) error {
	if err := f.t.Row(tensor, row, dst); err != nil {
		return err
	}
	const exponent = 0x7f80
	for i, v := range dst {
		if v&exponent == exponent {
			return fmt.Errorf("%s: found %v at [%d, %d], want finite weights", tensor, math.Float32frombits(uint32(v)<<16), row, i)
		}
	}
	return nil
}

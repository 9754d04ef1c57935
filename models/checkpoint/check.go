package checkpoint

import (
	"context"
	"encoding/binary"
	"fmt"
	"math"
	"runtime"
	"sync"
	"sync/atomic"

	"github.com/mkgen/mkgen/models"
	"github.com/mkgen/mkgen/models/half"
)

// checkBlock is how many bytes of a tensor one call looks at: a multiple of every
// element's size.
const checkBlock = 4 << 20

// Check reads every weight and refuses those that are not finite as bf16: NaN,
// infinities, and numbers of F32 so large that they round to one. Its error lists
// each such tensor with the first position and the number of them.
//
// progress, if not nil, is called as the work advances, with the bytes read and
// Bytes; never from two goroutines at a time, with done increasing and at last
// equal to total. It must not call Close. When ctx ends, Check returns ctx.Err();
// after Close, ErrClosed; if a file cannot be read any more, an error that says so.
func (c *Checkpoint) Check(ctx context.Context, progress func(done, total int64)) error {
	var blocks []block
	for _, name := range c.order {
		t := c.tensors[name]
		for at := t.begin; at < t.end; at += checkBlock {
			blocks = append(blocks, block{t: t, at: at, end: min(t.end, at+checkBlock)})
		}
	}
	var mu sync.Mutex
	done, total := int64(0), c.Bytes()
	err := parallel(ctx, len(blocks), func(i int) error {
		b := &blocks[i]
		if err := c.read(b.t, b.scan); err != nil {
			return err
		}
		mu.Lock()
		defer mu.Unlock()
		done += b.end - b.at
		if progress != nil {
			progress(done, total)
		}
		return nil
	})
	if err != nil {
		return err
	}
	return report(blocks)
}

// block is a part of a tensor, and what scan found in it.
type block struct {
	t       *tensor
	at, end int64 // bytes, as in entry
	bad     int64 // elements that are not finite
	first   int64 // index in the tensor of the first such element
	value   float64
}

// scan looks for elements that bf16 cannot hold, 8 bytes at a time.
func (b *block) scan() error {
	base := b.t.start - b.t.begin
	data := b.t.file.data[base+b.at : base+b.end]
	mask, carry, sign := lanes(b.t.from)
	i := 0
	for ; i+8 <= len(data); i += 8 {
		if (binary.LittleEndian.Uint64(data[i:])&mask+carry)&sign != 0 {
			b.examine(data, i, i+8)
		}
	}
	b.examine(data, i, len(data))
	return nil
}

// lanes returns constants such that (x&mask+carry)&sign has a bit for each element
// of x that is not finite as bf16; no sum reaches the next element.
func lanes(from models.DType) (mask, carry, sign uint64) {
	const twos, fours = 0x0001_0001_0001_0001, 0x0000_0001_0000_0001
	switch from {
	case models.BF16: // exponent all ones
		return 0x7f80 * twos, 0x0080 * twos, 0x8000 * twos
	case models.F16:
		return 0x7c00 * twos, 0x0400 * twos, 0x8000 * twos
	case models.F32: // from halfway between the largest bf16 and 2^128
		return 0x7fffffff * fours, (0x80000000 - 0x7f7f8000) * fours, 0x80000000 * fours
	}
	panic("BUG: checkpoint: scan of " + from.String())
}

// examine counts the elements in data[from:to] that are not finite.
func (b *block) examine(data []byte, from, to int) {
	size := b.t.from.Bytes()
	for i := from; i < to; i += size {
		out := element(data[i:], b.t.from)
		if out&0x7f80 != 0x7f80 {
			continue
		}
		if b.bad == 0 {
			b.first = (b.at - b.t.begin + int64(i)) / int64(size)
			b.value = valueOf(data[i:], b.t.from, out)
		}
		b.bad++
	}
}

// element is the bf16 of the first element of data.
func element(data []byte, from models.DType) half.BF16 {
	switch from {
	case models.F16:
		return fromF16(half.F16At(data))
	case models.F32:
		return ofBits(binary.LittleEndian.Uint32(data))
	default:
		return half.BF16At(data)
	}
}

// valueOf is the value on disk of an element whose bf16 is not finite.
func valueOf(data []byte, from models.DType, converted half.BF16) float64 {
	if from == models.F32 {
		return float64(math.Float32frombits(binary.LittleEndian.Uint32(data)))
	}
	return float64(converted.Float32())
}

// report makes one problem of all bad blocks of a tensor.
func report(blocks []block) error {
	var p problems
	for i := 0; i < len(blocks); {
		t, first, bad := blocks[i].t, (*block)(nil), int64(0)
		for ; i < len(blocks) && blocks[i].t == t; i++ {
			if bad += blocks[i].bad; first == nil && blocks[i].bad > 0 {
				first = &blocks[i]
			}
		}
		if first != nil {
			p.add(first.problem(bad))
		}
	}
	return p.Err()
}

func (b *block) problem(bad int64) Problem {
	position := []int64{b.first}
	if len(b.t.shape) == 2 {
		position = []int64{b.first / int64(b.t.cols), b.first % int64(b.t.cols)}
	}
	p := Problem{File: b.t.file.name, Tensor: b.t.name, Want: "finite weights",
		Found: fmt.Sprintf("%.9g at %s", b.value, showShape(position))}
	if !math.IsNaN(b.value) && !math.IsInf(b.value, 0) {
		p.Want += " below 3.3961775e38, which bf16 can hold"
	}
	if bad > 1 {
		p.Why = fmt.Sprintf("the first of %d such elements", bad)
	}
	return p
}

// parallel calls work for 0 to n-1 on as many goroutines as there are processors.
// After an error, or the end of ctx, no further call is made; it returns the error
// of the least index that failed.
func parallel(ctx context.Context, n int, work func(i int) error) error {
	var next atomic.Int64
	var wg sync.WaitGroup
	var mu sync.Mutex
	failed, failure := n, error(nil)
	fail := func(i int, err error) {
		mu.Lock()
		defer mu.Unlock()
		if next.Store(int64(n)); i < failed {
			failed, failure = i, err
		}
	}
	for range min(n, runtime.GOMAXPROCS(0)) {
		wg.Go(func() {
			for ctx.Err() == nil {
				i := int(next.Add(1)) - 1
				if i >= n {
					return
				}
				if err := work(i); err != nil {
					fail(i, err)
				}
			}
		})
	}
	wg.Wait()
	if failure == nil && int(next.Load()) < n {
		return ctx.Err()
	}
	return failure
}

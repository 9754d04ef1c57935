package cases

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"sync"

	"github.com/mkgen/mkgen/models/half"
	"github.com/mkgen/mkgen/models/synth"
)

// fill writes elements of a tensor of the generator, little-endian bf16, on all
// cores.
func (c *Case) fill(dst []byte, name string, std float64, start, elems int64) error {
	t := synth.Tensor{Name: name, Shape: []int{int(elems)}, Recipe: synth.Normal(std)}
	const block = 1 << 19 // elements
	var wg sync.WaitGroup
	slots := make(chan struct{}, runtime.GOMAXPROCS(0))
	failed := make([]error, ceilDiv(len(dst), 2*block))
	for i := range failed {
		slots <- struct{}{}
		wg.Go(func() {
			part := dst[2*block*i : min(2*block*(i+1), len(dst))]
			values := make([]half.BF16, len(part)/2)
			failed[i] = synth.Fill(values, c.Seed, t, start+int64(block*i))
			for j, v := range values {
				v.Put(part[2*j:])
			}
			<-slots
		})
	}
	wg.Wait()
	return errors.Join(failed...)
}

// KV writes a layer of the cache, in its own order, from byte at on (of a whole
// element) over the whole of dst.
func (c *Case) KV(dst []byte, layer int, at int64) error {
	name := fmt.Sprintf("kv.%d", layer)
	if c.ElementBytes() == 1 {
		c.fillE4M3(dst, name, at)
		return nil
	}
	return c.fill(dst, name, c.KVStd, at/2, c.LayerBytes()/2)
}

// fillE4M3 writes random e4m3 numbers: of the generator's word r for an element, sign
// and mantissa are bits 7 and 0 to 2, and the exponent's field is 5 plus bits 8 and 9:
// magnitudes from 1/4 to 15/4.
func (c *Case) fillE4M3(dst []byte, name string, at int64) {
	const block = 1 << 20
	k0, k1 := synth.Key(c.Seed, name)
	var wg sync.WaitGroup
	slots := make(chan struct{}, runtime.GOMAXPROCS(0))
	for from := 0; from < len(dst); from += block {
		slots <- struct{}{}
		wg.Go(func() {
			part := dst[from:min(from+block, len(dst))]
			for j := range part {
				r := fmix(fmix((uint32(at)+uint32(from+j))^k0) + k1)
				part[j] = byte(r&0x87 | ((r>>8&3)+5)<<3)
			}
			<-slots
		})
	}
	wg.Wait()
}

// fmix is murmur3's finaliser, as in package synth.
func fmix(x uint32) uint32 {
	x = (x ^ x>>16) * 0x85ebca6b
	x = (x ^ x>>13) * 0xc2b2ae35
	return x ^ x>>16
}

// Q returns the queries, bf16, [row][head][dimension].
func (c *Case) Q() ([]byte, error) {
	q := make([]byte, 2*c.T()*c.Heads*c.HeadDim)
	return q, c.fill(q, "q", c.QStd, 0, int64(len(q)/2))
}

// Mask returns the words of the custom mask: three bits of four are set, and each
// row sees its own token, the last one it may see.
func (c *Case) Mask() []uint32 {
	words := make([]uint32, c.MaskWords())
	k0, k1 := synth.Key(c.Seed, "mask")
	for i := range words {
		x := (uint32(i) ^ k0) * 0x9e3779b1
		x ^= x >> 15
		y := (x + k1) * 0x85ebca77
		words[i] = x | (y ^ y>>13)
	}
	if len(words) == 0 {
		return words
	}
	t := 0
	for _, s := range c.Sequences {
		for i := range s.New {
			at := s.Cached + i
			words[c.Rows[t].Mask+at/32] |= 1 << (at % 32)
			t++
		}
	}
	return words
}

// Write writes dir/NAME/case.json and what the case has beside it, but for the
// outputs: WriteOut, before.
func (c *Case) Write(dir string) error {
	dir = filepath.Join(dir, c.Name)
	if err := os.MkdirAll(dir, 0o777); err != nil {
		return err
	}
	q, err := c.Q()
	if err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(dir, c.Files.Q), q, 0o666); err != nil {
		return err
	}
	if c.Files.Mask != "" {
		if err := writeWords(filepath.Join(dir, c.Files.Mask), c.Mask()); err != nil {
			return err
		}
	}
	c.KVScales = c.Scales()
	text, err := json.Marshal(c)
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, "case.json"), append(text, '\n'), 0o666)
}

// WriteOut writes what a kernel made of a layer, [row][head][dimension], and notes
// it in Outs.
func (c *Case) WriteOut(dir string, layer int, out []float32) error {
	if want := c.T() * c.Heads * c.HeadDim; len(out) != want {
		return fmt.Errorf("case %s: an output of %d elements, want %d", c.Name, len(out), want)
	}
	file := fmt.Sprintf("out.%d.f32", layer)
	if err := os.MkdirAll(filepath.Join(dir, c.Name), 0o777); err != nil {
		return err
	}
	if err := writeWords(filepath.Join(dir, c.Name, file), out); err != nil {
		return err
	}
	c.Outs = append(c.Outs, Out{layer, file})
	return nil
}

// writeWords writes a slice little-endian.
func writeWords(path string, words any) error {
	data, err := binary.Append(nil, binary.LittleEndian, words)
	if err != nil {
		return err
	}
	return os.WriteFile(path, data, 0o666)
}

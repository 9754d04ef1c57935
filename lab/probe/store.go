package probe

import (
	"encoding/binary"
	"fmt"
	"math"
	"runtime"
	"sync"
	"sync/atomic"

	"github.com/mkgen/mkgen/megakernel"
	"github.com/mkgen/mkgen/megakernel/reference"
	"github.com/mkgen/mkgen/models/half"
	"github.com/mkgen/mkgen/tasks/attention"
)

// Read copies from a buffer of a kernel on its device.
type Read func(buffer string, offset int64, dst []byte) error

// Store is the KV cache of one sequence on a device.
type Store struct {
	Kernel *megakernel.Kernel
	Read   Read
	Pages  int      // a layer, in the cache
	Table  []uint32 // page of tokens i·Page …
}

// Rows are keys and values of one layer for tokens From, From + 1, … as the cache has them.
type Rows struct {
	From, Tokens int
	Heads, D     int          // KV heads and their dimension
	Of           [2][]float32 // keys and values, [Tokens][Heads][D]
}

// Row is a token's key (v = 0) or value (v = 1) of a head; token counts from 0.
func (r *Rows) Row(v, token, head int) []float32 {
	at := (token*r.Heads + head) * r.D
	return r.Of[v][at : at+r.D]
}

// Layer reads tokens from to to−1 of a layer, page by page.
func (s *Store) Layer(layer, from, to int) (*Rows, error) {
	l := s.Kernel.KV
	if from < 0 || to < from || to > len(s.Table)*l.Page {
		return nil, fmt.Errorf("probe: tokens %d to %d of a cache for %d", from, to, len(s.Table)*l.Page)
	}
	r := &Rows{From: from, Tokens: to - from, Heads: l.Heads, D: l.D}
	for v := range r.Of {
		r.Of[v] = make([]float32, r.Tokens*l.Heads*l.D)
	}
	scales, err := s.scales(layer)
	if err != nil || to == from {
		return r, err
	}
	first, end := from/l.Page, (to+l.Page-1)/l.Page
	raw := make([]byte, (end-first)*l.PageBytes())
	for p := first; p < end; p++ {
		if err := s.Read("kv", s.pageAt(layer, p), raw[(p-first)*l.PageBytes():][:l.PageBytes()]); err != nil {
			return nil, err
		}
	}
	places := placesOf(l)
	each(r.Tokens, func(t int) {
		slot, page := (from+t)%l.Page, raw[((from+t)/l.Page-first)*l.PageBytes():]
		for i := range 2 * l.Heads {
			v, head := i%2, i/2
			decode(l, r.Row(v, t, head), page[l.TokenBytes()*(head*l.Page+slot):], places[slot][v], scales[i])
		}
	})
	return r, nil
}

// Overwrite gives a token of a head in a layer the key and the value of another one, as a slot
// has those of the token before that used it, until it is written.
func (s *Store) Overwrite(write func(buffer string, offset int64, src []byte) error, layer, head, token,
	with int) error {
	l := s.Kernel.KV
	places, size := placesOf(l), l.TokenBytes()/(2*l.D)
	row := func(t int) int64 { return s.pageAt(layer, t/l.Page) + int64(l.TokenBytes()*(head*l.Page+t%l.Page)) }
	from, to := make([]byte, l.TokenBytes()), make([]byte, l.TokenBytes())
	if err := s.Read("kv", row(with), from); err != nil {
		return err
	}
	for v := range 2 {
		for d := range l.D {
			at := places[with%l.Page][v][d] * size
			copy(to[places[token%l.Page][v][d]*size:], from[at:at+size])
		}
	}
	return write("kv", row(token), to)
}

// pageAt is where page i of the sequence begins in the buffer.
func (s *Store) pageAt(layer, i int) int64 {
	return (int64(layer)*int64(s.Pages) + int64(s.Table[i])) * int64(s.Kernel.KV.PageBytes())
}

// scales are what a layer's elements are to be multiplied by, [KV heads][K, V].
func (s *Store) scales(layer int) ([]float64, error) {
	n := 2 * s.Kernel.KV.Heads
	out := make([]float64, n)
	for i := range out {
		out[i] = 1
	}
	if s.Kernel.KV.ScalesLen() == 0 {
		return out, nil
	}
	raw := make([]byte, 4*n)
	if err := s.Read(megakernel.BufferKVScales, int64(layer*4*n), raw); err != nil {
		return nil, err
	}
	for i := range out {
		out[i] = float64(math.Float32frombits(binary.LittleEndian.Uint32(raw[4*i:])))
	}
	return out, nil
}

// placesOf is where the elements of a key and of a value lie in a token's bytes, in elements,
// [slot][K, V][D].
func placesOf(l attention.KVLayout) [][2][]int {
	out := make([][2][]int, l.Page)
	for slot := range out {
		for v := range 2 {
			for d := range l.D {
				out[slot][v] = append(out[slot][v], l.Index(1, 0, 0, 0, slot, v, d)-slot*2*l.D)
			}
		}
	}
	return out
}

// decode reads a row whose elements lie at these places.
func decode(l attention.KVLayout, dst []float32, row []byte, places []int, scale float64) {
	for d, at := range places {
		if l.Type == attention.KVE4M3 {
			dst[d] = float32(reference.FromE4M3(row[at]) * scale)
		} else {
			dst[d] = half.BF16At(row[2*at:]).Float32()
		}
	}
}

// each calls body for 0 to n−1 on all cores.
func each(n int, body func(i int)) {
	var next atomic.Int64
	var wg sync.WaitGroup
	for range min(n, runtime.GOMAXPROCS(0)) {
		wg.Go(func() {
			for i := int(next.Add(1)) - 1; i < n; i = int(next.Add(1)) - 1 {
				body(i)
			}
		})
	}
	wg.Wait()
}

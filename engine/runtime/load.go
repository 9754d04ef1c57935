package runtime

import (
	"encoding/binary"
	"fmt"
	"math"
	"unsafe"

	"github.com/mkgen/mkgen/megakernel"
	"github.com/mkgen/mkgen/pipeline"
)

// alloc reserves all buffers; sizes has those that the kernel leaves open, in bytes.
func (s *runner) alloc(sizes map[string]int64) error {
	for _, b := range s.mk.IR.Globals() {
		if done, err := s.borrow(b.Name); err != nil {
			return fmt.Errorf("buffer %s: %w", b.Name, err)
		} else if done {
			continue
		}
		bytes := b.Bytes()
		if b.Name == "kv" {
			bytes = int64(s.mk.Config.Layers) * int64(s.pages) * int64(s.mk.KV.PageBytes())
		} else if n, ok := sizes[b.Name]; ok {
			bytes = n
		}
		if err := s.dev.Alloc(b.Name, bytes); err != nil {
			return fmt.Errorf("buffer %s of %d bytes: %w", b.Name, bytes, err)
		}
	}
	return nil
}

// tables fills the buffers that do not depend on the weights.
func (s *runner) tables(epoch uint32) error {
	if err := s.floats("inv_freq", s.mk.InvFreq()); err != nil {
		return err
	}
	if f := s.mk.RopeFactors(); f != nil {
		if err := s.floats(megakernel.BufferRopeFactors, f); err != nil {
			return err
		}
	}
	if n := s.mk.KV.ScalesLen(); n > 0 {
		if err := s.scales(n); err != nil {
			return err
		}
	}
	if err := s.variants(); err != nil {
		return err
	}
	for _, w := range []struct {
		name string
		data []byte
	}{{"plan", words(s.mk.PlanTable())}, {"barrier", words([]uint32{epoch})}, {"epoch", words([]uint32{epoch})},
		{"stop", words([]uint32{0})}, {"abort", make([]byte, 4*pipeline.AbortWords)},
		{"records", make([]byte, 4*megakernel.RecordWords(s.mk))}} {
		if err := s.dev.Write(w.name, 0, w.data); err != nil {
			return err
		}
	}
	if err := s.startDraws(); err != nil {
		return err
	}
	return s.zero(s.mk.Zeroed()...)
}

// variants fills what attention reads that is not plain.
func (s *runner) variants() error {
	if slopes := s.mk.Slopes(); slopes != nil {
		if err := s.floats(megakernel.BufferSlopes, slopes); err != nil {
			return err
		}
	}
	if !s.mk.HasHeadScales() {
		if s.headScales != nil {
			return fmt.Errorf("%d head scales of a kernel that has none; its attention would need head-scale", len(s.headScales))
		}
		return nil
	}
	scales := s.headScales
	if scales == nil {
		scales = s.mk.HeadScales()
	}
	if len(scales) != s.mk.Config.Heads {
		return fmt.Errorf("%d head scales, want %d: one a query head", len(scales), s.mk.Config.Heads)
	}
	for i, x := range scales {
		if math.IsNaN(float64(x)) || math.IsInf(float64(x), 0) {
			return fmt.Errorf("head scale %d is %g, want a finite number", i, x)
		}
	}
	return s.floats(megakernel.BufferHeadScales, scales)
}

func (s *runner) floats(name string, values []float32) error {
	bits := make([]uint32, len(values))
	for i, x := range values {
		bits[i] = math.Float32bits(x)
	}
	return s.dev.Write(name, 0, words(bits))
}

// KVScaler is what weights are that come with scales for a float8 KV cache, such
// as those from a checkpoint that has them: [layer][KV head][K, V], or nil.
type KVScaler interface{ KVScales() ([]float32, error) }

// KVScales are those of the tensors, if they have any.
func (f *fromTensors) KVScales() ([]float32, error) {
	if t, ok := f.t.(KVScaler); ok {
		return t.KVScales()
	}
	return nil, nil
}

// scalesOf takes over the scales that come with the weights, where a cache wants
// some and none are given.
func (s *runner) scalesOf(w Weights) (err error) {
	if t, ok := w.(KVScaler); ok && s.kvScales == nil && s.mk.KV.ScalesLen() > 0 {
		s.kvScales, err = t.KVScales()
	}
	return err
}

// scales writes the KV cache's scales, those given or 1 for all.
func (s *runner) scales(n int) error {
	given := s.kvScales
	if given == nil {
		given = s.mk.KVScales()
	}
	if len(given) != n {
		return fmt.Errorf("%d scales of the KV cache, want %d: two for each of %d heads of %d layers", len(given), n,
			s.mk.KV.Heads, s.mk.KV.Layers)
	}
	bits := make([]uint32, n)
	for i, x := range given {
		if !(x > 0) || math.IsInf(float64(x), 0) {
			return fmt.Errorf("scale %d of the KV cache is %g, want a positive number", i, x)
		}
		bits[i] = math.Float32bits(x)
	}
	return s.dev.Write(megakernel.BufferKVScales, 0, words(bits))
}

// words are the bytes of words as a device has them, little-endian: where the host is so, too, the same memory.
func words(vs []uint32) []byte {
	if littleEndian {
		return unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(vs))), 4*len(vs))
	}
	out := make([]byte, 0, 4*len(vs))
	for _, v := range vs {
		out = binary.LittleEndian.AppendUint32(out, v)
	}
	return out
}

var littleEndian = binary.NativeEndian.Uint16([]byte{1, 0}) == 1

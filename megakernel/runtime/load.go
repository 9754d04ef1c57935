package runtime

import (
	"encoding/binary"
	"fmt"
	"math"

	"github.com/mkgen/mkgen/megakernel"
	"github.com/mkgen/mkgen/pipeline"
)

func (s *Session) alloc() error {
	for _, b := range s.mk.IR.Globals() {
		bytes := b.Bytes()
		switch b.Name {
		case "kv":
			bytes = int64(s.mk.Config.Layers) * int64(s.pages) * int64(s.mk.KV.PageBytes())
		case "page_table":
			bytes = 4 * int64(len(s.table))
		case "tokens", "stream":
			bytes = 4 * int64(s.Capacity()+1)
		}
		if err := s.dev.Alloc(b.Name, bytes); err != nil {
			return fmt.Errorf("buffer %s of %d bytes: %w", b.Name, bytes, err)
		}
	}
	return nil
}

func (s *Session) load(t megakernel.Tensors, epoch uint32) error {
	if err := s.loadMatrices(t); err != nil {
		return err
	}
	if err := s.loadEmbeddings(t); err != nil {
		return err
	}
	gains, err := s.mk.Gains(t)
	if err != nil {
		return err
	}
	freq := s.mk.InvFreq()
	bits := make([]uint32, len(freq))
	for i, f := range freq {
		bits[i] = math.Float32bits(f)
	}
	for _, w := range []struct {
		name string
		data []byte
	}{{"gains", gains}, {"inv_freq", words(bits)}, {"plan", words(s.mk.PlanTable())}, {"page_table", words(s.table)}, {"barrier", words([]uint32{epoch})}, {"epoch", words([]uint32{epoch})}, {"stop", words([]uint32{0})},
		{"abort", make([]byte, 4*pipeline.AbortWords)}, {"records", make([]byte, 4*megakernel.RecordWords(s.mk))}} {
		if err := s.dev.Write(w.name, 0, w.data); err != nil {
			return err
		}
	}
	return nil
}

func (s *Session) loadMatrices(t megakernel.Tensors) error {
	p := s.mk.Plan
	image := make([]byte, max(p.LayerBytes, p.FinalBytes))
	for l := range p.Layers + 1 {
		layer, n := l, p.LayerBytes
		if l == p.Layers {
			layer, n = pipeline.FinalLayer, p.FinalBytes
		}
		if err := s.mk.PackLayer(image[:n], layer, t); err != nil {
			return err
		}
		if err := s.dev.Write("weights", int64(l)*p.LayerBytes, image[:n]); err != nil {
			return err
		}
	}
	return nil
}

// loadEmbeddings copies the embedding matrix a block of rows at a time.
func (s *Session) loadEmbeddings(t megakernel.Tensors) error {
	c := &s.mk.Config
	const block = 1024
	row, raw := make([]uint16, c.Hidden), make([]byte, 0, block*c.Hidden*2)
	for from := 0; from < c.Vocab; from += block {
		raw = raw[:0]
		for r := from; r < min(from+block, c.Vocab); r++ {
			if err := s.mk.Embed(r, row, t); err != nil {
				return err
			}
			for _, v := range row {
				raw = binary.LittleEndian.AppendUint16(raw, v)
			}
		}
		if err := s.dev.Write("embed", int64(from)*int64(c.Hidden)*2, raw); err != nil {
			return err
		}
	}
	return nil
}

func words(vs []uint32) []byte {
	out := make([]byte, 0, 4*len(vs))
	for _, v := range vs {
		out = binary.LittleEndian.AppendUint32(out, v)
	}
	return out
}

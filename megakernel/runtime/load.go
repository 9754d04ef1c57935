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
		case "tokens", "stream", "times":
			bytes = 4 * int64(s.Capacity()+1)
		}
		if err := s.dev.Alloc(b.Name, bytes); err != nil {
			return fmt.Errorf("buffer %s of %d bytes: %w", b.Name, bytes, err)
		}
	}
	return nil
}

// tables fills the buffers that do not depend on the weights.
func (s *Session) tables(epoch uint32) error {
	freq := s.mk.InvFreq()
	bits := make([]uint32, len(freq))
	for i, f := range freq {
		bits[i] = math.Float32bits(f)
	}
	for _, w := range []struct {
		name string
		data []byte
	}{{"inv_freq", words(bits)}, {"plan", words(s.mk.PlanTable())}, {"page_table", words(s.table)}, {"barrier", words([]uint32{epoch})}, {"epoch", words([]uint32{epoch})}, {"stop", words([]uint32{0})},
		{"abort", make([]byte, 4*pipeline.AbortWords)}, {"records", make([]byte, 4*megakernel.RecordWords(s.mk))}} {
		if err := s.dev.Write(w.name, 0, w.data); err != nil {
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

package runtime

import (
	"encoding/binary"
	"fmt"
	"math"

	"github.com/mkgen/mkgen/megakernel"
	"github.com/mkgen/mkgen/pipeline"
)

// Session is one sequence being decoded by one kernel on one device. Not safe
// for concurrent use.
type Session struct {
	mk    *megakernel.Kernel
	dev   Device
	pages int
	table []uint32
	pos   int
	epoch uint32
}

// NewSession allocates and fills every buffer of the kernel: weights from t, a
// KV cache of pages pages a layer, used in the order of table (page of tokens
// i·Page …); a nil table means 0, 1, 2 …. The first launch finds the barrier
// counter at epoch.
func NewSession(mk *megakernel.Kernel, dev Device, t megakernel.Tensors, pages int, table []uint32, epoch uint32) (*Session, error) {
	if table == nil {
		for i := range pages {
			table = append(table, uint32(i))
		}
	}
	if err := checkTable(table, pages); err != nil {
		return nil, err
	}
	s := &Session{mk: mk, dev: dev, pages: pages, table: table, epoch: epoch}
	if pages < 1 || len(table) < 1 {
		return nil, fmt.Errorf("a KV cache of %d pages and a table of %d, want at least 1", pages, len(table))
	}
	if err := s.alloc(); err != nil {
		return nil, err
	}
	return s, s.load(t)
}

// Capacity is the number of tokens the page table has room for.
func (s *Session) Capacity() int { return len(s.table) * s.mk.KV.Page }

// Pos is the position of the next token.
func (s *Session) Pos() int { return s.pos }

// Rewind makes the next token's position pos, at most Pos: later tokens of the
// cache are forgotten.
func (s *Session) Rewind(pos int) error {
	if pos < 0 || pos > s.pos {
		return fmt.Errorf("rewind to position %d, want 0 to %d", pos, s.pos)
	}
	s.pos = pos
	return nil
}

// SetTable replaces the page table; tokens already in the cache must keep their
// contents at the pages it names.
func (s *Session) SetTable(table []uint32) error {
	if len(table) != len(s.table) {
		return fmt.Errorf("a page table of %d pages, want %d", len(table), len(s.table))
	}
	if err := checkTable(table, s.pages); err != nil {
		return err
	}
	s.table = table
	return s.dev.Write("page_table", 0, words(table))
}

// checkTable refuses a page table that leads outside a cache of pages pages.
func checkTable(table []uint32, pages int) error {
	for i, p := range table {
		if int64(p) >= int64(pages) {
			return fmt.Errorf("page table entry %d is page %d, the cache has %d", i, p, pages)
		}
	}
	return nil
}

// Step feeds one token and returns the next one by argmax. The logits stay on
// the device; Logits reads them.
func (s *Session) Step(token int) (next int, err error) {
	switch {
	case token < 0 || token >= s.mk.Config.Vocab:
		return 0, fmt.Errorf("token %d, want 0 to %d", token, s.mk.Config.Vocab-1)
	case s.pos >= s.Capacity():
		return 0, fmt.Errorf("the KV cache is full: %d tokens in %d pages of %d", s.pos, len(s.table), s.mk.KV.Page)
	}
	err = s.dev.Launch(map[string]uint64{
		megakernel.ScalarToken: uint64(token), megakernel.ScalarPos: uint64(s.pos),
		megakernel.ScalarPages: uint64(s.pages), megakernel.ScalarEpoch: uint64(s.epoch)})
	if err != nil {
		return 0, err
	}
	s.epoch += uint32(s.mk.Barriers() * s.mk.Options.SMs)
	s.pos++
	var b [4]byte
	if err := s.dev.Read("next", 0, b[:]); err != nil {
		return 0, err
	}
	return int(binary.LittleEndian.Uint32(b[:])), nil
}

// Logits reads the logits of the last step into dst, Vocab long.
func (s *Session) Logits(dst []float32) error {
	if len(dst) != s.mk.Config.Vocab {
		return fmt.Errorf("room for %d logits, want %d", len(dst), s.mk.Config.Vocab)
	}
	raw := make([]byte, 4*len(dst))
	if err := s.dev.Read("logits", 0, raw); err != nil {
		return err
	}
	for i := range dst {
		dst[i] = math.Float32frombits(binary.LittleEndian.Uint32(raw[4*i:]))
	}
	return nil
}

func (s *Session) alloc() error {
	for _, b := range s.mk.IR.Globals() {
		bytes := b.Bytes()
		switch b.Name {
		case "kv":
			bytes = int64(s.mk.Config.Layers) * int64(s.pages) * int64(s.mk.KV.PageBytes())
		case "page_table":
			bytes = 4 * int64(len(s.table))
		}
		if err := s.dev.Alloc(b.Name, bytes); err != nil {
			return fmt.Errorf("buffer %s of %d bytes: %w", b.Name, bytes, err)
		}
	}
	return nil
}

func (s *Session) load(t megakernel.Tensors) error {
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
	}{{"gains", gains}, {"inv_freq", words(bits)}, {"plan", words(s.mk.PlanTable())}, {"page_table", words(s.table)}, {"barrier", words([]uint32{s.epoch})}} {
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

// Skip makes the next token's position pos without feeding the tokens before
// it: their keys and values are whatever the cache holds. It is for timing.
func (s *Session) Skip(pos int) { s.pos = pos }

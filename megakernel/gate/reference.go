package gate

import (
	"bufio"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
)

// Reference is a directory that tests/gpu/reference.py wrote.
type Reference struct {
	// Config is the model's config.json as given.
	Config json.RawMessage `json:"config"`
	// Seed of weights and tokens (package models/synth), and WeightsHash, which synth.SampleHash must give for them.
	Seed        uint64 `json:"seed"`
	WeightsHash string `json:"weights_hash"`
	Vocab       int    `json:"vocab"`
	// Sequences are teacher-forced each from an empty cache.
	Sequences []Sequence `json:"sequences"`
	// Torch, Transformers, Attention and Device say what made it.
	Torch        string `json:"torch"`
	Transformers string `json:"transformers"`
	Attention    string `json:"attention"`
	Device       string `json:"device"`

	dir string
}

// Sequence is Length tokens, of which positions First to First+Scored-1 have logits.
type Sequence struct {
	Length int    `json:"length"`
	First  int    `json:"first"`
	Scored int    `json:"scored"`
	Tokens string `json:"tokens"` // file of Length int32
	O      string `json:"o"`      // file of [Scored, Vocab] float32
	H      string `json:"h"`
}

// OpenReference reads dir/manifest.json and checks that every file it names has the size that it should.
func OpenReference(dir string) (*Reference, error) {
	path := filepath.Join(dir, "manifest.json")
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("reference: %w", err)
	}
	r := &Reference{dir: dir}
	if err := json.Unmarshal(data, r); err != nil {
		return nil, fmt.Errorf("reference: %s: %w", path, err)
	}
	if r.Vocab <= 0 || len(r.Sequences) == 0 {
		return nil, fmt.Errorf("reference: %s: vocabulary of %d, %d sequences, want at least 1 of each", path, r.Vocab, len(r.Sequences))
	}
	for q, s := range r.Sequences {
		if s.First < 0 || s.Scored <= 0 || s.First+s.Scored != s.Length {
			return nil, fmt.Errorf("reference: %s: sequence %d scores %d positions from %d on, want the last of its %d", path, q, s.Scored, s.First, s.Length)
		}
		rows := int64(s.Scored) * int64(r.Vocab)
		for i, file := range []string{s.Tokens, s.O, s.H} {
			elems := []int64{int64(s.Length), rows, rows}[i]
			info, err := os.Stat(filepath.Join(dir, file))
			if err != nil {
				return nil, fmt.Errorf("reference: sequence %d: %w", q, err)
			}
			if info.Size() != 4*elems {
				return nil, fmt.Errorf("reference: %s has %d bytes, want %d", file, info.Size(), 4*elems)
			}
		}
	}
	return r, nil
}

// Tokens returns the token ids of sequence q; one outside the vocabulary is an error.
func (r *Reference) Tokens(q int) ([]int, error) {
	file := r.Sequences[q].Tokens
	data, err := os.ReadFile(filepath.Join(r.dir, file))
	if err != nil {
		return nil, fmt.Errorf("reference: %w", err)
	}
	out := make([]int, len(data)/4)
	for i := range out {
		out[i] = int(int32(binary.LittleEndian.Uint32(data[4*i:])))
		if out[i] < 0 || out[i] >= r.Vocab {
			return nil, fmt.Errorf("reference: %s: token %d is %d, want 0 to %d", file, i, out[i], r.Vocab-1)
		}
	}
	return out, nil
}

// EachRow calls f for every scored position of sequence q in order with its rows of o and h, [Vocab] each, which f must not
// keep. It stops at f's first error and returns it.
func (r *Reference) EachRow(q int, f func(position int, o, h []float32) error) error {
	s := r.Sequences[q]
	var readers [2]io.Reader
	for i, name := range []string{s.O, s.H} {
		file, err := os.Open(filepath.Join(r.dir, name))
		if err != nil {
			return fmt.Errorf("reference: %w", err)
		}
		defer file.Close() // only read
		readers[i] = bufio.NewReaderSize(file, 1<<20)
	}
	raw := make([]byte, 4*r.Vocab)
	rows := [2][]float32{make([]float32, r.Vocab), make([]float32, r.Vocab)}
	for p := range s.Scored {
		for i, in := range readers {
			if _, err := io.ReadFull(in, raw); err != nil {
				return fmt.Errorf("reference: sequence %d position %d: %w", q, s.First+p, err)
			}
			for j := range rows[i] {
				rows[i][j] = math.Float32frombits(binary.LittleEndian.Uint32(raw[4*j:]))
			}
		}
		if err := f(s.First+p, rows[0], rows[1]); err != nil {
			return err
		}
	}
	return nil
}

package gate

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"strings"
)

// Reference is a directory that tests/gpu/reference.py wrote.
type Reference struct {
	// Config is the model's config.json as given.
	Config json.RawMessage `json:"config"`
	// Seed of weights and tokens (package models/synth), and WeightsHash, which synth.SampleHash must give for them.
	Seed        uint64 `json:"seed"`
	WeightsHash string `json:"weights_hash"`
	Vocab       int    `json:"vocab"`
	// WeightFormat is what the layers' matrices were rounded to behind the hash; "" is bf16.
	WeightFormat string `json:"weight_format"`
	// HeadFormat is what the LM head was rounded to; "" is bf16. An embedding that is tied to it was not.
	HeadFormat string `json:"head_format"`
	// Sequences are teacher-forced each from an empty cache.
	Sequences []Sequence `json:"sequences"`
	// Roundings says what s is: which of the kernel's roundings it has.
	Roundings Roundings `json:"roundings"`
	// OwnRows is how far s's keys and values are from o's at most, by the measure of probe.CacheRow; 0: not known.
	OwnRows float64 `json:"own_rows"`
	// OwnRowSizes is the same of probe.CacheRowScale.
	OwnRowSizes float64 `json:"own_row_sizes"`
	// Variant is its attention, where that is not plain.
	Variant Variant `json:"variant"`
	// Torch, Transformers, Attention and Device say what made it.
	Torch        string `json:"torch"`
	Transformers string `json:"transformers"`
	Attention    string `json:"attention"`
	Device       string `json:"device"`

	dir string
}

// Roundings is what tests/gpu/roundings.py says of s.
type Roundings struct {
	Version int    `json:"version"` // of the places, RoundingsVersion
	KV      string `json:"kv"`      // format of the KV cache: "bf16" or "e4m3"
	Places  string `json:"places"`
	// format of weights whose products' inputs are rounded so; "": of Reference.WeightFormat
	Inputs string `json:"inputs"`
}

// RoundingsVersion is the version of the places at which s rounds, which are the kernel's (docs/numerics.md).
const RoundingsVersion = 2

// Sequence is Length tokens, of which positions First to First+Scored-1 have logits.
type Sequence struct {
	Length int    `json:"length"`
	First  int    `json:"first"`
	Scored int    `json:"scored"`
	Tokens string `json:"tokens"` // file of Length int32
	O      string `json:"o"`      // file of [Scored, Vocab] float32
	H      string `json:"h"`
	S      string `json:"s"`            // file of [Scored] float64: KL(o‖s)
	KV     string `json:"kv,omitempty"` // file of projections of keys and values, see probe.CompareRows
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
		return nil, fmt.Errorf("reference: %s: vocabulary of %d, %d sequences, want at least 1 of each", path, r.Vocab,
			len(r.Sequences))
	}
	if err := r.hasOwn(path); err != nil {
		return nil, err
	}
	for q, s := range r.Sequences {
		if s.First < 0 || s.Scored <= 0 || s.First+s.Scored != s.Length {
			return nil, fmt.Errorf("reference: %s: sequence %d scores %d positions from %d on, want the last of its %d", path, q,
				s.Scored, s.First, s.Length)
		}
		rows := int64(s.Scored) * int64(r.Vocab)
		for i, file := range []string{s.Tokens, s.O, s.H, s.S} {
			size := []int64{4 * int64(s.Length), 4 * rows, 4 * rows, 8 * int64(s.Scored)}[i]
			info, err := os.Stat(filepath.Join(dir, file))
			if err != nil {
				return nil, fmt.Errorf("reference: sequence %d: %w", q, err)
			}
			if info.Size() != size {
				return nil, fmt.Errorf("reference: %s has %d bytes, want %d", file, info.Size(), size)
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

// hasOwn refuses a reference without s, or with an s of other roundings.
func (r *Reference) hasOwn(path string) error {
	var sequences []string
	for _, q := range r.Sequences {
		sequences = append(sequences, fmt.Sprintf("%d:%d", q.Length, q.Scored))
	}
	again := fmt.Sprintf("make it again: tests/gpu/reference.py --config CONFIG --out %s --seed %d --sequences %s", r.dir,
		r.Seed, strings.Join(sequences, ","))
	if r.Roundings.Version == 0 {
		return fmt.Errorf("reference: %s is of an older reference.py: it does not say what the kernel's own roundings cost (s), by which kernels are judged; %s", path, again)
	}
	if r.Roundings.Version != RoundingsVersion {
		return fmt.Errorf("reference: %s has the kernel's roundings of version %d, want %d; %s", path, r.Roundings.Version,
			RoundingsVersion, again)
	}
	return nil
}

// Own returns KL(o‖s) of every scored position of sequence q.
func (r *Reference) Own(q int) ([]float64, error) {
	data, err := os.ReadFile(filepath.Join(r.dir, r.Sequences[q].S))
	if err != nil {
		return nil, fmt.Errorf("reference: %w", err)
	}
	out := make([]float64, len(data)/8)
	for i := range out {
		out[i] = math.Float64frombits(binary.LittleEndian.Uint64(data[8*i:]))
	}
	return out, nil
}

// EachRow calls f for every scored position of sequence q in order with its rows of o and h, [Vocab] each. It stops at
// f's first error and returns it.
func (r *Reference) EachRow(q int, f func(position int, o, h []float32) error) error {
	return r.eachFrom(q, r.Sequences[q].First, func(position int, row row) error {
		o, h := row.floats()
		return f(position, o, h)
	})
}

// eachFrom is EachRow from a scored position on, with the rows as they are stored.
func (r *Reference) eachFrom(q, from int, f func(position int, row row) error) error {
	s := r.Sequences[q]
	rows, err := r.rowsOf(q, from-s.First)
	if err != nil {
		return err
	}
	defer rows.close()
	for p := from; p < s.First+s.Scored; p++ {
		row, err := rows.next()
		if err != nil {
			return err
		}
		if err := f(p, row); err != nil {
			return err
		}
	}
	return nil
}

// row holds o and h of one position, [Vocab] f32 each, little-endian.
type row struct{ o, h []byte }

func (r row) floats() (o, h []float32) { return littleFloats(r.o), littleFloats(r.h) }

func littleFloats(raw []byte) []float32 {
	out := make([]float32, len(raw)/4)
	for i := range out {
		out[i] = math.Float32frombits(binary.LittleEndian.Uint32(raw[4*i:]))
	}
	return out
}

// rowReader reads the rows of one sequence, one after another.
type rowReader struct {
	what  string
	files []*os.File
	bytes int // of a row
}

// rowsOf reads from the skip-th scored position on.
func (r *Reference) rowsOf(q, skip int) (*rowReader, error) {
	s := r.Sequences[q]
	rr := &rowReader{what: fmt.Sprintf("sequence %d", q), bytes: 4 * r.Vocab}
	for _, name := range []string{s.O, s.H} {
		file, err := os.Open(filepath.Join(r.dir, name))
		if err == nil {
			rr.files = append(rr.files, file)
			_, err = file.Seek(int64(skip)*int64(rr.bytes), io.SeekStart)
		}
		if err != nil {
			rr.close()
			return nil, fmt.Errorf("reference: %w", err)
		}
	}
	return rr, nil
}

// next is the next position's row.
func (r *rowReader) next() (row, error) {
	raw := make([]byte, 2*r.bytes)
	out := row{raw[:r.bytes], raw[r.bytes:]}
	for i, into := range [][]byte{out.o, out.h} {
		if _, err := io.ReadFull(r.files[i], into); err != nil {
			return row{}, fmt.Errorf("reference: rows of %s: %w", r.what, err)
		}
	}
	return out, nil
}

func (r *rowReader) close() {
	for _, f := range r.files {
		f.Close() // only read
	}
}

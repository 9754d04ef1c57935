package megakernel

import (
	"encoding/json"
	"fmt"
	"go/token"
	"strings"

	"github.com/mkgen/mkgen/emit"
	"github.com/mkgen/mkgen/models"
	"github.com/mkgen/mkgen/pipeline"
	"github.com/mkgen/mkgen/pipeline/i4"
)

// Layout is the machine-readable layout of a generated kernel, layout.json:
// what emit says of any kernel, and what this one was made of.
type Layout struct {
	Generator string   `json:"generator"` // Generator, which marks the directory as ours
	Files     []string `json:"files"`     // all generated files, this one included
	// SHA256 has the other files' hashes as they were written, in hexadecimal: one that has
	// been edited since is not replaced.
	SHA256   map[string]string `json:"sha256"`
	Package  string            `json:"package"` // the Go host package's name
	Model    LayoutModel       `json:"model"`
	Options  Options           `json:"options"`  // with nothing left open, see Kernel.laidOut
	Barriers int               `json:"barriers"` // grid barriers and counts of arrivals of a step
	Phases   []LayoutPhase     `json:"phases"`
	*emit.Layout
}

// LayoutModel is the model's configuration under the names of Hugging Face's
// config.json, with its rope in the form of rope_scaling.
type LayoutModel struct {
	Name         string         `json:"name"`
	Layers       int            `json:"num_hidden_layers"`
	Hidden       int            `json:"hidden_size"`
	Intermediate int            `json:"intermediate_size"`
	Heads        int            `json:"num_attention_heads"`
	KVHeads      int            `json:"num_key_value_heads"`
	HeadDim      int            `json:"head_dim"`
	Vocab        int            `json:"vocab_size"`
	MaxPositions int            `json:"max_position_embeddings"`
	NormEps      float64        `json:"rms_norm_eps"`
	Tied         bool           `json:"tie_word_embeddings"`
	RopeTheta    float64        `json:"rope_theta"`
	RopeScaling  *LayoutScaling `json:"rope_scaling"`
	DType        string         `json:"dtype"` // of the weights
}

// LayoutScaling is a rope scaling of type llama3.
type LayoutScaling struct {
	Type              string  `json:"rope_type"`
	Factor            float64 `json:"factor"`
	LowFreqFactor     float64 `json:"low_freq_factor"`
	HighFreqFactor    float64 `json:"high_freq_factor"`
	OriginalPositions int     `json:"original_max_position_embeddings"`
}

// LayoutPhase is a Phase with how often it runs in a step.
type LayoutPhase struct {
	Name   string   `json:"name"`
	Runs   int      `json:"runs"`
	Ops    []string `json:"ops"`
	Matrix string   `json:"matrix,omitempty"`
	Sync   string   `json:"sync,omitempty"`
}

func layoutModel(c *models.Config) LayoutModel {
	m := LayoutModel{Name: c.Name, Layers: c.Layers, Hidden: c.Hidden, Intermediate: c.Intermediate, Heads: c.Heads,
		KVHeads: c.KVHeads, HeadDim: c.HeadDim, Vocab: c.Vocab, MaxPositions: c.MaxPositions, NormEps: c.NormEps,
		Tied: c.TieEmbeddings, RopeTheta: c.Rope.Theta, DType: c.DType.String()}
	if s := c.Rope.Scaling; s != nil {
		m.RopeScaling = &LayoutScaling{string(s.Type), s.Factor, s.LowFreqFactor, s.HighFreqFactor, s.OriginalPositions}
	}
	return m
}

// elementOrder is emit.PackEntry.Order of every matrix, see package pipeline.
const elementOrder = "bf16, little-endian; element (r, k) of a tile of 8 rows lies at byte (k/32)*512 + r*64 + ((k%32/8) xor (r/2))*16 + (k%8)*2, the next tile 16*KPadded bytes on"

// e4m3Order is it of a matrix of e4m3.
const e4m3Order = "e4m3, scaled by row; element (r, k) of a tile of 8 rows lies at byte (k/64)*512 + r*64 + ((k%32/8) xor (r/2))*16 + (k%64/32)*8 + k%8, " +
	"the f32 scale of row r at byte 8*KPadded + 4*r, the next tile 8*KPadded + 512 bytes on"

// e4m3BlockOrder is it of a matrix of e4m3 with blocks.
const e4m3BlockOrder = "e4m3, scaled by blocks of 128 rows and 128 columns of a tensor; element (r, k) of a tile of 8 rows lies at byte " +
	"(k/256)*2064 + (k%256/64)*512 + r*64 + ((k%32/8) xor (r/2))*16 + (k%64/32)*8 + k%8, its f32 scale at byte " +
	"(k/256)*2064 + 2048 + (r%2)*8 + (k%256/128)*4, the next tile KPadded/256*2064 bytes on"

// int4Order is it of a matrix of integers.
func int4Order(f pipeline.Format, s i4.Shape) string {
	columns := s.Run * i4.Columns
	code := "two's complement"
	if s.E2M1 {
		code = "e2m1"
	}
	text := fmt.Sprintf("%d bits, %s; a tile of 8 rows is runs of %d columns, of %d bytes each; of a run, column k of row r lies at byte "+
		"(k/128)*%d + ", s.Bits(), code, columns, s.RunBytes(), s.BlockBytes())
	switch {
	case s.E2M1:
		text += "r*64 + (k%16/4)*16 + (k%64/16)*4 + (k%128/64)*2 + k%4/2, in the low nibble where k is even, else in the high one; "
	case s.Wide:
		text += "(k%128/64)*512 + r*64 + (k%16/4)*16 + (k%64/16)*4 + k%4; "
	default:
		text += "r*64 + (k%16/4)*16 + (k%64/16)*4 + k%4, in the low nibble where k%128 is below 64, else in the high one; "
	}
	if s.Group == i4.Whole {
		return text + fmt.Sprintf(
			"the f32 scale of row r at byte KPadded*%d + 4*r of a tile, the next tile KPadded*%d + %d bytes on", s.Bits(),
			s.Bits(), pipeline.GroupBytes)
	}
	at := map[int]string{128: "g", 64: fmt.Sprintf("g%%2*%d + g/2", s.Run),
		32: fmt.Sprintf("g%%4/2*%d + g/4*2 + g%%2", 2*s.Run), 16: fmt.Sprintf("g%%8/4*%d + g/8*4 + g%%4", 4*s.Run)}[s.Group]
	scale, behind := "bf16", ""
	switch {
	case f.F16Scales():
		scale = "f16"
	case s.Exponents():
		scale = "e8m0"
	case s.EntryBytes() == 1:
		scale = "e4m3"
	}
	if s.Zeros {
		behind = fmt.Sprintf(", and 2 bytes behind it %d times the zero point", -s.Times())
	}
	text += fmt.Sprintf("the %s scale of row r and group g, of %d columns, at byte %d + %d*(r*%d + %s) of a run%s, ",
		scale, s.Group, s.Run*s.BlockBytes(), s.EntryBytes(), s.RowEntries(), at, behind)
	if n := f.ScaleBytes(); n > 0 {
		return text + fmt.Sprintf(
			"the f32 factor of row r 4*r bytes behind KPadded/%d runs, the next tile %d bytes behind them",
			columns, n)
	}
	return text + fmt.Sprintf("the next tile KPadded/%d runs on", columns)
}

// acrossOrder is it of a matrix that is dealt out by columns.
const acrossOrder = "bf16, little-endian; a tile is %d columns of all rows, padded to a multiple of %d, and lies 16*KPadded bytes from the one before; element (r, k) of it, row r and k-th column, " +
	"lies at byte (r/64)*512 + (r%%8)*64 + (r/8%%2)*32 + (k/2)*16 + (r/16%%4)*4 + (k%%2)*2"

func order(m *pipeline.MatrixPlan) string {
	if m.Across() {
		return fmt.Sprintf(acrossOrder, pipeline.AcrossColumns, pipeline.AcrossRows)
	}
	if shape, ok := m.Format.Int4(m.K); ok {
		return int4Order(m.Format, shape)
	}
	if m.Format == pipeline.FormatE4M3 {
		return e4m3Order
	}
	if m.Format.Blocks() {
		return e4m3BlockOrder
	}
	return elementOrder
}

// extras is what emit cannot know of the kernel.
func (mk *Kernel) extras() emit.Extras {
	x := emit.Extras{Constants: mk.constants(), Tables: mk.tables(), Needs: mk.needs()}
	p := mk.Plan
	for i := range planMatrices {
		m, source := mk.matrix(i), mk.Sources(i)
		e := emit.PackEntry{Matrix: m.Name, Rows: m.Rows, K: m.K, Layers: p.Layers, Base: m.Start, LayerStride: p.LayerBytes,
			TileRows: pipeline.TileRows, Tiles: m.Tiles, KPadded: m.KPadded, Order: order(m),
			Sources: emit.RowRuns(m.Rows, func(row int) (string, int) { s := source(row); return s.Tensor, s.Row })}
		if i == layerMatrices {
			e.Layers, e.LayerStride, e.Base = 1, 0, p.Image(pipeline.FinalLayer)+m.Start
		}
		x.Packing = append(x.Packing, e)
	}
	return x
}

// constants are what a host program needs of the model and the options.
func (mk *Kernel) constants() []emit.Constant {
	c, o := &mk.Config, &mk.Options
	list := []emit.Constant{
		{Name: "layers", Value: int64(c.Layers), Doc: "decoder layers"},
		{Name: "hidden", Value: int64(c.Hidden), Doc: "length of the residual vector"},
		{Name: "intermediate", Value: int64(c.Intermediate), Doc: "rows of gate and of up"},
		{Name: "heads", Value: int64(c.Heads), Doc: "query heads"},
		{Name: "kv_heads", Value: int64(c.KVHeads), Doc: "key and value heads"},
		{Name: "head_dim", Value: int64(c.HeadDim), Doc: "elements of a head"},
		{Name: "vocab", Value: int64(c.Vocab), Doc: "tokens, and logits"},
		{Name: "max_positions", Value: int64(c.MaxPositions), Doc: "positions the model was made for"},
		{Name: "page_size", Value: int64(o.Page), Doc: "tokens of a KV page"},
		{Name: "page_bytes", Value: int64(mk.KV.PageBytes()), Doc: "bytes of a KV page of one layer"},
		{Name: "kv_splits", Value: int64(o.Splits), Doc: "parts the KV cache is split into"},
		{Name: "ring_stages", Value: int64(o.Stages), Doc: "stages of the ring"},
		{Name: "stage_bytes", Value: int64(o.StageBytes), Doc: "bytes of a stage"},
		{Name: "copies_in_flight", Value: int64(o.InFlight), Doc: "bulk copies outstanding at most"},
		{Name: "consumer_warps", Value: int64(o.Consumers), Doc: "warps of a CTA that compute; one more copies"},
		{Name: "barriers", Value: int64(mk.Barriers()),
			Doc: "grid barriers and counts of arrivals of a step; epoch grows by barriers times grid"},
		{Name: "packed_bytes", Value: mk.Plan.PackedBytes, Doc: "bytes of the buffer weights"},
	}
	if mk.Ragged() {
		l := mk.Limits(0)
		list = append(list,
			emit.Constant{Name: "rows", Value: int64(l.Rows), Doc: "query rows of a step at most"},
			emit.Constant{Name: "chunk_tokens", Value: int64(l.ChunkTokens), Doc: "tokens of a KV head that a stage holds"},
			emit.Constant{Name: "items_per_cta", Value: int64(l.ItemsPerCTA), Doc: "work items of an SM and class at most"},
			emit.Constant{Name: "partials", Value: int64(l.Partials), Doc: "partial states at most"},
			emit.Constant{Name: "classes", Value: int64(len(mk.specs)), Doc: "kinds of layers, each with work of its own"})
	}
	return list
}

// layoutFile is layout.json.
func (mk *Kernel) layoutFile(l *emit.Layout, pkg string, files []File) (File, error) {
	full := Layout{Generator: Generator, Package: pkg, SHA256: map[string]string{}, Model: layoutModel(&mk.Config),
		Barriers: mk.Barriers(), Layout: l, Options: mk.laidOut()}
	for i := range mk.Phases {
		p := &mk.Phases[i]
		full.Phases = append(full.Phases, LayoutPhase{p.Name, mk.runs(p), p.Ops, p.Matrix, p.Sync})
	}
	for _, f := range files {
		full.Files = append(full.Files, f.Name)
		full.SHA256[f.Name] = hashOf(f.Data)
	}
	full.Files = append(full.Files, LayoutFile)
	text, err := json.MarshalIndent(&full, "", "  ")
	return File{Name: LayoutFile, Data: append(text, '\n')}, err
}

// packageName is a Go package name made of a model's name: llama3-8b becomes
// llama3_8b.
func packageName(model string) string {
	name := strings.Map(func(r rune) rune {
		if r == '-' || r == '.' {
			return '_'
		}
		return r
	}, model)
	if !token.IsIdentifier(name) || name == "main" || name == "init" || name == "_" {
		name = "model_" + name
	}
	return name
}

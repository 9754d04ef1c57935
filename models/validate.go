package models

import (
	"fmt"
	"math"
	"slices"
	"strconv"
)

// Largest accepted sizes. They keep every product that this package or a planner
// forms inside an int64: all weights of a model take under 2^60 bytes, and the KV
// cache of 16 sequences of MaxMaxPositions positions at most 2^62.
const (
	MaxLayers       = 1 << 10
	MaxHidden       = 1 << 20
	MaxIntermediate = 1 << 20
	MaxHeads        = 1 << 12
	MaxHeadDim      = 1 << 10
	MaxVocab        = 1 << 22
	MaxMaxPositions = 1 << 24
	MaxEOS          = 64 // entries of Config.EOS
)

// minBandRatio is the least HighFreqFactor/LowFreqFactor: nearer together, the
// float32 interpolation between the two bands is mostly rounding error.
const minBandRatio = 1.1

// size is one integer field that must lie between 1 and max.
type size struct {
	field string
	value *int
	max   int
}

// sizes lists the integer fields of c in the order in which they are reported.
func (c *Config) sizes() []size {
	return []size{
		{"num_hidden_layers", &c.Layers, MaxLayers},
		{"hidden_size", &c.Hidden, MaxHidden},
		{"intermediate_size", &c.Intermediate, MaxIntermediate},
		{"num_attention_heads", &c.Heads, MaxHeads},
		{"num_key_value_heads", &c.KVHeads, MaxHeads},
		{"head_dim", &c.HeadDim, MaxHeadDim},
		{"vocab_size", &c.Vocab, MaxVocab},
		{"max_position_embeddings", &c.MaxPositions, MaxMaxPositions},
	}
}

// Validate reports every reason why c does not describe a model, joined with
// errors.Join; each is a *FieldError that names the field as config.json does.
//
// It checks mathematics only: sizes positive and within the documented maxima,
// whole groups of query heads, an even head dimension, finite positive norm and
// rope constants, token ids within the vocabulary. What a kernel cannot do
// (alignments of Hidden, Intermediate or HeadDim, a head dimension or vocabulary
// too large for its tiles) is refused by the stage that cannot do it.
func (c Config) Validate() error {
	var p problems
	if !validName(c.Name) {
		p.add("name", strconv.Quote(shorten(c.Name)),
			"1 to 64 of a-z 0-9 . _ - starting with a letter or digit", "")
	}
	for _, s := range c.sizes() {
		if *s.value < 1 || *s.value > s.max {
			p.add(s.field, strconv.Itoa(*s.value), wantInt(1, s.max), "")
		}
	}
	c.validateHeads(&p)
	wantFloat(&p, "rms_norm_eps", c.NormEps, 1e-30, 1)
	c.Rope.validate(&p, c.HeadDim)
	c.validateTraits(&p)
	c.validateTokens(&p)
	c.validateDTypes(&p)
	return p.Err()
}

func (c Config) validateHeads(p *problems) {
	if c.Heads > 0 && c.KVHeads > 0 && c.Heads%c.KVHeads != 0 {
		p.add("num_key_value_heads", strconv.Itoa(c.KVHeads),
			fmt.Sprintf("a divisor of num_attention_heads %d", c.Heads), "")
	}
	if c.HeadDim > 0 && c.HeadDim%2 != 0 {
		p.add("head_dim", strconv.Itoa(c.HeadDim), "an even number",
			"rotary embedding turns pairs of elements")
	}
}

func (r Rope) validate(p *problems, headDim int) {
	wantFloat(p, "rope_theta", r.Theta, 1, 1e12)
	if r.Dims < 0 || r.Dims > headDim || r.Dims%2 != 0 {
		p.add("partial_rotary_factor", strconv.Itoa(r.Dims)+" elements",
			"an even number of head_dim's "+strconv.Itoa(headDim), "")
	}
	s := r.Scaling
	if s == nil {
		return
	}
	wantFloat(p, "rope_scaling.factor", s.Factor, 1, 1e4)
	if s.OriginalPositions < 1 || s.OriginalPositions > MaxMaxPositions {
		p.add("rope_scaling.original_max_position_embeddings",
			strconv.Itoa(s.OriginalPositions), wantInt(1, MaxMaxPositions), "")
	}
	wantFloat(p, "rope_scaling.attention_factor", orOne(s.AttentionFactor), 1e-3, 1e3)
	switch s.Type {
	case ScalingLlama3:
		s.validateBands(p)
	case ScalingDynamic:
		if r.over(headDim).Dims < 4 {
			p.add("partial_rotary_factor", "2 rotated elements", "4 or more", "dynamic scaling divides by their number less 2")
		}
	case ScalingYaRN:
		wantFloat(p, "rope_scaling.beta_slow", s.BetaSlow, 1e-6, 1e6)
		wantFloat(p, "rope_scaling.beta_fast", s.BetaFast, s.BetaSlow, 1e6)
		wantFloat(p, "rope_theta", r.Theta, 1.001, 1e12)
	case ScalingLongRoPE:
		for _, list := range []struct {
			name    string
			factors []float64
		}{{"short_factor", s.ShortFactors}, {"long_factor", s.LongFactors}} {
			if n := r.over(headDim).Dims / 2; len(list.factors) != n {
				p.add("rope_scaling."+list.name, fmt.Sprintf("%d numbers", len(list.factors)), strconv.Itoa(n), "")
			}
			for _, x := range list.factors {
				wantFloat(p, "rope_scaling."+list.name, x, 1, 1e6)
			}
		}
	}
}

func (s *Scaling) validateBands(p *problems) {
	wantFloat(p, "rope_scaling.low_freq_factor", s.LowFreqFactor, 1e-6, 1e6)
	wantFloat(p, "rope_scaling.high_freq_factor", s.HighFreqFactor, 1e-6, 1e6)
	if s.HighFreqFactor < minBandRatio*s.LowFreqFactor {
		p.add("rope_scaling.high_freq_factor", formatFloat(s.HighFreqFactor),
			formatFloat(minBandRatio)+" times low_freq_factor "+formatFloat(s.LowFreqFactor)+" or more", "")
	}
}

// validateTraits checks what a family has set; field names are those of the mathematics, since families' differ.
func (c Config) validateTraits(p *problems) {
	t := &c.Traits
	for _, f := range []struct {
		name string
		x    float64
	}{{"the factor of embeddings", t.EmbedScale}, {"the factor of scores", t.AttnScale},
		{"the factor of residuals", t.ResidualScale}, {"the factor of logits", t.LogitScale},
		{"the soft cap of scores", t.AttnSoftCap}, {"the soft cap of logits", t.LogitSoftCap}} {
		if f.x != 0 {
			wantFloat(p, f.name, f.x, 1e-30, 1e30)
		}
	}
	for _, k := range t.Kinds {
		if k.Window < 0 {
			p.add("sliding_window", strconv.Itoa(k.Window), "0 or more", "")
		}
		if k.Rope != nil {
			k.Rope.validate(p, c.HeadDim)
		}
	}
	for _, kind := range t.Pattern {
		if kind < 0 || kind >= len(t.kinds()) {
			p.add("layer_types", fmt.Sprintf("kind %d", kind), fmt.Sprintf("one of %d kinds", len(t.kinds())), "")
			return
		}
	}
}

func (c Config) validateTokens(p *problems) {
	last := max(c.Vocab, 1) - 1
	if c.BOS != NoToken && (c.BOS < 0 || c.BOS > last) {
		p.add("bos_token_id", strconv.Itoa(c.BOS), wantInt(0, last), "the id must lie in the vocabulary")
	}
	if len(c.EOS) > MaxEOS {
		p.add("eos_token_id", fmt.Sprintf("%d ids", len(c.EOS)), fmt.Sprintf("at most %d", MaxEOS), "")
		return
	}
	for i, id := range c.EOS {
		if id < 0 || id > last {
			p.add("eos_token_id", strconv.Itoa(id), wantInt(0, last), "the id must lie in the vocabulary")
		}
		if slices.Contains(c.EOS[:i], id) {
			p.add("eos_token_id", strconv.Itoa(id)+" twice", "each id once", "")
		}
	}
}

func (c Config) validateDTypes(p *problems) {
	if c.DType != BF16 {
		p.add("dtype", c.DType.String(), BF16.String(), "the kernel reads no other weights yet")
	}
	if c.CheckpointDType > F32 {
		p.add("torch_dtype", c.CheckpointDType.String(), wantDType, "")
	}
}

// wantFloat adds a problem unless low <= x <= high; a NaN is never in range.
func wantFloat(p *problems, field string, x, low, high float64) {
	if math.IsNaN(x) || x < low || x > high {
		p.add(field, formatFloat(x), "a number from "+formatFloat(low)+" to "+formatFloat(high), "")
	}
}

func wantInt(low, high int) string { return fmt.Sprintf("an integer from %d to %d", low, high) }

func formatFloat(x float64) string { return strconv.FormatFloat(x, 'g', -1, 64) }

// validName reports whether s may stand in file names and identifiers.
func validName(s string) bool {
	if len(s) < 1 || len(s) > 64 {
		return false
	}
	for i, r := range []byte(s) {
		letter := r >= 'a' && r <= 'z' || r >= '0' && r <= '9'
		if !letter && (i == 0 || r != '.' && r != '_' && r != '-') {
			return false
		}
	}
	return true
}

// wantDType names what torch_dtype and dtype may hold.
const wantDType = `"bfloat16", "float16" or "float32"`

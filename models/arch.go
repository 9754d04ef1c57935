package models

// Arch is the mathematics of a dense decoder as data, layer by layer. Config.Arch derives it; reference, kernel and
// planner read it. For one token at position p,
//
//	x = Embed.Scale · E[token]
//	each layer l, of kind Kinds[Pattern[l]]:
//	    x += Residual · postAttn(attention(preAttn(x)))
//	    x += Residual · postMLP(mlp(preMLP(x)))
//	logits = cap(Head.Scale · H·final(x))     cap(y) = SoftCap·tanh(y/SoftCap)
//
// where a norm of kind NoNorm leaves its input as it is. All matrices are [outputs, inputs]: y = W·x.
type Arch struct {
	Hidden  int     // length of the residual vector x
	Vocab   int     // rows of E and of H
	Embed   Embed   // how a token becomes x
	Kinds   []Layer // the different layers, without repetition
	Pattern []int   // the kind of every layer; its length is the number of layers
	Final   Norm    // before the LM head
	Head    Head    // how x becomes logits
}

// Layers returns the number of layers.
func (a *Arch) Layers() int { return len(a.Pattern) }

// Layer returns the description of layer l, 0 <= l < Layers.
func (a *Arch) Layer(l int) *Layer { return &a.Kinds[a.Pattern[l]] }

// Embed is the embedding of tokens.
type Embed struct {
	Scale float64 // factor of the embedding's row: 1, sqrt(hidden) in Gemma, embedding_multiplier in Granite
}

// Layer is one kind of decoder layer.
type Layer struct {
	PreAttn, PostAttn Norm // of attention's input, and of its output before it is added
	PreMLP, PostMLP   Norm // of the MLP's input, and of its output before it is added
	Attn              Attn
	MLP               MLP
	Residual          float64 // factor of both branches as they are added: 1, residual_multiplier in Granite
}

// Norms are the norms of x in the order of a layer; those absent are of kind NoNorm.
func (l *Layer) Norms() [4]Norm { return [4]Norm{l.PreAttn, l.PostAttn, l.PreMLP, l.PostMLP} }

// NormKind is a way to normalise a vector.
type NormKind uint8

// The kinds of norms.
const (
	NoNorm  NormKind = iota // the input as it is
	RMSNorm                 // x/sqrt(mean(x²)+eps)·gain (Zhang and Sennrich, 2019)
)

// Norm is a norm with one gain an element.
type Norm struct {
	Kind    NormKind
	Eps     float64 // added to the mean square
	PlusOne bool    // the factor is 1 + gain (Gemma)
}

// Attn is grouped-query attention with rotary positions. For n, the layer's normalised input,
//
//	q, k, v = Wq·n + bq, Wk·n + bk, Wv·n + bv
//	q, k    = rope(norm(q)), rope(norm(k))
//	score_t = cap(Scale · Grows(p) · q·k_t)    for the last Window positions t, p included; all where Window is 0
//	out     = Wo·Σ softmax(score)_t · v_t + bo
//
// Query head h reads KV head h/(Heads/KVHeads). cap is as in Arch; a SoftCap of 0 leaves scores as they are.
type Attn struct {
	Heads, KVHeads, HeadDim int

	QKVBias bool // of the projections of q, k and v
	OBias   bool // of the output projection
	// QKNorm normalises q and k before the rotation, each head by itself with one gain of HeadDim that all heads share
	// (Qwen3, Gemma 3), or with QKNormWide all heads at once with a gain an element (OLMo-2).
	QKNorm     Norm
	QKNormWide bool
	Rope       Rope    // Dims 0: no rotation in these layers (NoPE)
	Scale      float64 // factor of scores: 1/sqrt(HeadDim) unless the family has another
	Grows      Growth  // factor of scores by the query's position; zero for 1
	Window     int     // positions that a token sees, itself included; 0 for all
	SoftCap    float64 // of scores, 0 for none (Gemma 2)
}

// Act is the activation of an MLP's gate.
type Act uint8

// The activations.
const (
	SiLU     Act = iota // x/(1+e^-x)
	GELUTanh            // x/2·(1+tanh(sqrt(2/π)·(x+0.044715·x³))), gelu_pytorch_tanh
)

// MLP is Wdown·(act(Wgate·m + bgate) * (Wup·m + bup)) + bdown.
type MLP struct {
	Width int  // rows of gate and of up
	Act   Act  // of the gate
	Bias  bool // of all three projections
}

// Head is the LM head.
type Head struct {
	Tied    bool    // the matrix is the embedding's
	Scale   float64 // factor of logits: 1, 1/logits_scaling in Granite
	SoftCap float64 // of logits behind Scale, 0 for none (Gemma 2)
}

// Arch derives the mathematics of c, which must be valid.
func (c Config) Arch() Arch {
	a := Arch{Hidden: c.Hidden, Vocab: c.Vocab, Embed: Embed{orOne(c.Traits.EmbedScale)}, Final: c.norm(),
		Head: Head{Tied: c.TieEmbeddings, Scale: orOne(c.Traits.LogitScale), SoftCap: c.Traits.LogitSoftCap}}
	for _, k := range c.Traits.kinds() {
		a.Kinds = append(a.Kinds, c.layer(k))
	}
	for l := range c.Layers {
		kind := 0
		if p := c.Traits.Pattern; len(p) > 0 {
			kind = p[l%len(p)]
		}
		a.Pattern = append(a.Pattern, kind)
	}
	return a
}

func (c *Config) norm() Norm { return Norm{RMSNorm, c.NormEps, c.Traits.PlusOne} }

func (c *Config) layer(k Kind) Layer {
	t := &c.Traits
	l := Layer{MLP: MLP{c.Intermediate, t.Act, t.MLPBias}, Residual: orOne(t.ResidualScale), Attn: c.attn(k)}
	if t.Norms != NormsAfter {
		l.PreAttn, l.PreMLP = c.norm(), c.norm()
	}
	if t.Norms != NormsBefore {
		l.PostAttn, l.PostMLP = c.norm(), c.norm()
	}
	return l
}

func (c *Config) attn(k Kind) Attn {
	t := &c.Traits
	a := Attn{Heads: c.Heads, KVHeads: c.KVHeads, HeadDim: c.HeadDim, QKVBias: t.QKVBias, OBias: t.OBias,
		Rope: c.kindRope(k), Scale: t.attnScale(c.HeadDim), Grows: t.Grows, Window: k.Window, SoftCap: t.AttnSoftCap}
	if t.QKNorm != NoQKNorm {
		a.QKNorm, a.QKNormWide = c.norm(), t.QKNorm == QKNormWide
	}
	return a
}

// kindRope resolves the rotation of a kind: Dims is HeadDim where the whole head is rotated.
func (c *Config) kindRope(k Kind) Rope {
	switch {
	case k.NoRope:
		return Rope{}
	case k.Rope != nil:
		return k.Rope.over(c.HeadDim)
	}
	return c.Rope.over(c.HeadDim)
}

func orOne(x float64) float64 {
	if x == 0 {
		return 1
	}
	return x
}

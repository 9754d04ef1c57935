package models

import (
	"fmt"
	"maps"
	"strconv"
	"strings"
)

// Role is what a tensor of weights is to the mathematics, whatever its family calls it.
type Role uint8

// The roles, in the order in which a step uses them; between RolePreAttn and RolePostMLP they are a layer's.
const (
	RoleEmbed    Role = iota // [Vocab, Hidden]
	RolePreAttn              // gain [Hidden] of Layer.PreAttn
	RoleQ                    // [Heads·HeadDim, Hidden]
	RoleK                    // [KVHeads·HeadDim, Hidden]
	RoleV                    // [KVHeads·HeadDim, Hidden]
	RoleQBias                // [Heads·HeadDim]
	RoleKBias                // [KVHeads·HeadDim]
	RoleVBias                // [KVHeads·HeadDim]
	RoleQNorm                // gain [HeadDim], or [Heads·HeadDim] where the norm is wide
	RoleKNorm                // gain [HeadDim], or [KVHeads·HeadDim] where the norm is wide
	RoleO                    // [Hidden, Heads·HeadDim]
	RoleOBias                // [Hidden]
	RolePostAttn             // gain [Hidden] of Layer.PostAttn
	RolePreMLP               // gain [Hidden] of Layer.PreMLP
	RoleGate                 // [Width, Hidden]
	RoleUp                   // [Width, Hidden]
	RoleGateBias             // [Width]
	RoleUpBias               // [Width]
	RoleDown                 // [Hidden, Width]
	RoleDownBias             // [Hidden]
	RolePostMLP              // gain [Hidden] of Layer.PostMLP
	RoleFinal                // gain [Hidden] of the final norm
	RoleHead                 // [Vocab, Hidden], absent where it is tied
	roles        = iota
)

// String returns the role's name in messages, such as "q" or "post-attention norm".
func (r Role) String() string {
	names := [roles]string{"embedding", "attention norm", "q", "k", "v", "q bias", "k bias", "v bias", "q norm", "k norm",
		"o", "o bias", "post-attention norm", "mlp norm", "gate", "up", "gate bias", "up bias", "down", "down bias",
		"post-mlp norm", "final norm", "head"}
	if int(r) >= len(names) {
		return "role " + strconv.Itoa(int(r))
	}
	return names[r]
}

// OfLayer reports whether every layer may have a tensor of the role.
func (r Role) OfLayer() bool { return r >= RolePreAttn && r <= RolePostMLP }

// IsNorm reports whether a tensor of the role holds gains.
func (r Role) IsNorm() bool {
	switch r {
	case RolePreAttn, RoleQNorm, RoleKNorm, RolePostAttn, RolePreMLP, RolePostMLP, RoleFinal:
		return true
	}
	return false
}

// IsBias reports whether a tensor of the role is added.
func (r Role) IsBias() bool {
	switch r {
	case RoleQBias, RoleKBias, RoleVBias, RoleOBias, RoleGateBias, RoleUpBias, RoleDownBias:
		return true
	}
	return false
}

// Tensor is one tensor of the mathematics and where a checkpoint has it: Rows rows of the tensor Name, from row First
// on. Name has Stored rows in all, more than Rows where a family packs several roles into one tensor, one below the
// other (Phi-3's qkv_proj). A vector is one row, or in a packed vector as many elements as it has Rows; see Vector.
type Tensor struct {
	Role       Role
	Layer      int // -1 for a tensor of no layer
	Rows, Cols int // Cols is 1 for a vector, whose elements are its rows
	Vector     bool
	Name       string
	First      int
	Stored     int
	// Run and Step are 0, or the rows come in runs of Run, whose firsts lie Step rows apart: q, k and v that are packed by
	// KV head (Config.ByKVHead).
	Run, Step int `json:",omitempty"`
}

// StoredRow returns where in the stored tensor a row of the mathematics lies, for r from 0 to Rows - 1.
func (t *Tensor) StoredRow(r int) int {
	if t.Run == 0 {
		return t.First + r
	}
	return t.First + r/t.Run*t.Step + r%t.Run
}

// Elements returns the number of weights.
func (t *Tensor) Elements() int64 { return int64(t.Rows) * int64(t.Cols) }

// shape is what a role needs in a layer of a model; rows 0 for nothing.
func (a *Arch) shape(r Role, l *Layer) (rows, cols int) {
	norm := func(n Norm, rows int) (int, int) {
		if n.Kind == NoNorm {
			return 0, 0
		}
		return rows, 1
	}
	bias := func(has bool, rows int) (int, int) {
		if !has {
			return 0, 0
		}
		return rows, 1
	}
	switch r {
	case RoleEmbed:
		return a.Vocab, a.Hidden
	case RoleFinal:
		return norm(a.Final, a.Hidden)
	case RoleHead:
		if a.Head.Tied {
			return 0, 0
		}
		return a.Vocab, a.Hidden
	}
	q, kv := l.Attn.Heads*l.Attn.HeadDim, l.Attn.KVHeads*l.Attn.HeadDim
	qNorm, kNorm := l.Attn.HeadDim, l.Attn.HeadDim
	if l.Attn.QKNormWide {
		qNorm, kNorm = q, kv
	}
	switch r {
	case RolePreAttn:
		return norm(l.PreAttn, a.Hidden)
	case RoleQ:
		return q, a.Hidden
	case RoleK, RoleV:
		return kv, a.Hidden
	case RoleQBias:
		return bias(l.Attn.QKVBias, q)
	case RoleKBias, RoleVBias:
		return bias(l.Attn.QKVBias, kv)
	case RoleQNorm:
		return norm(l.Attn.QKNorm, qNorm)
	case RoleKNorm:
		return norm(l.Attn.QKNorm, kNorm)
	case RoleO:
		return a.Hidden, q
	case RoleOBias:
		return bias(l.Attn.OBias, a.Hidden)
	case RolePostAttn:
		return norm(l.PostAttn, a.Hidden)
	case RolePreMLP:
		return norm(l.PreMLP, a.Hidden)
	case RoleGate, RoleUp:
		return l.MLP.Width, a.Hidden
	case RoleGateBias, RoleUpBias:
		return bias(l.MLP.Bias, l.MLP.Width)
	case RoleDown:
		return a.Hidden, l.MLP.Width
	case RoleDownBias:
		return bias(l.MLP.Bias, a.Hidden)
	case RolePostMLP:
		return norm(l.PostMLP, a.Hidden)
	}
	panic("BUG: models: shape of " + r.String())
}

// TensorNames is what a family calls the tensors of each role, with %d for the layer's number. Roles of one name are
// packed: rows one below the other, in the order of roles.
type TensorNames map[Role]string

// llamaNames are the names of LlamaForCausalLM, which most families share.
func llamaNames() TensorNames {
	const attn, mlp = "model.layers.%d.self_attn.", "model.layers.%d.mlp."
	return TensorNames{
		RoleEmbed:   "model.embed_tokens.weight",
		RolePreAttn: "model.layers.%d.input_layernorm.weight",
		RoleQ:       attn + "q_proj.weight", RoleK: attn + "k_proj.weight", RoleV: attn + "v_proj.weight",
		RoleQBias: attn + "q_proj.bias", RoleKBias: attn + "k_proj.bias", RoleVBias: attn + "v_proj.bias",
		RoleQNorm: attn + "q_norm.weight", RoleKNorm: attn + "k_norm.weight",
		RoleO: attn + "o_proj.weight", RoleOBias: attn + "o_proj.bias",
		RolePreMLP: "model.layers.%d.post_attention_layernorm.weight",
		RoleGate:   mlp + "gate_proj.weight", RoleUp: mlp + "up_proj.weight", RoleDown: mlp + "down_proj.weight",
		RoleGateBias: mlp + "gate_proj.bias", RoleUpBias: mlp + "up_proj.bias", RoleDownBias: mlp + "down_proj.bias",
		RoleFinal: "model.norm.weight",
		RoleHead:  "lm_head.weight",
	}
}

// names are those of c's family.
func (c *Config) names() TensorNames {
	names := llamaNames()
	maps.Copy(names, c.Names)
	return names
}

// Tensors lists the weights of c by role: embedding, the layers' one after the other, final norm, LM head; of a layer
// in the order of roles. c must be valid.
func (c Config) Tensors() []Tensor {
	a, names := c.Arch(), c.names()
	list := a.add(nil, names, RoleEmbed, RoleEmbed, -1)
	list[0].Stored += c.EmbedMore
	for l := range a.Layers() {
		list = c.grouped(a.add(list, names, RolePreAttn, RolePostMLP, l))
	}
	return a.add(list, names, RoleFinal, RoleHead, -1)
}

// TensorOf returns the tensor of a role in a layer, -1 for roles of none, and whether the model has one.
func (c *Config) TensorOf(r Role, layer int) (Tensor, bool) {
	a, first, last := c.Arch(), RolePreAttn, RolePostMLP
	switch {
	case r == RoleEmbed:
		first, last, layer = RoleEmbed, RoleEmbed, -1
	case !r.OfLayer():
		first, last, layer = RoleFinal, RoleHead, -1
	}
	for _, t := range c.grouped(a.add(nil, c.names(), first, last, layer)) {
		if t.Role == r {
			if r == RoleEmbed {
				t.Stored += c.EmbedMore
			}
			return t, true
		}
	}
	return Tensor{}, false
}

// grouped gives q, k and v, and their biases, the places that they have where a family packs them by KV head: of each
// its query heads, its key, its value.
func (c *Config) grouped(list []Tensor) []Tensor {
	if !c.ByKVHead {
		return list
	}
	d, group := c.HeadDim, c.GroupSize()
	for i := range list {
		t := &list[i]
		switch t.Role {
		case RoleQ, RoleQBias:
			t.First, t.Run = 0, group*d
		case RoleK, RoleKBias:
			t.First, t.Run = group*d, d
		case RoleV, RoleVBias:
			t.First, t.Run = (group+1)*d, d
		default:
			continue
		}
		t.Step = (group + 2) * d
	}
	return list
}

// TensorName returns what the tensor of a role is called, with %d for the layer's number; "" where the family has no
// such role.
func (c *Config) TensorName(r Role) string { return c.names()[r] }

// Stored is a tensor as a checkpoint has it.
type Stored struct {
	Name  string
	Shape []int  // rows and columns of a matrix, or the length of a vector
	First Tensor // the first of the roles that it holds
}

// Stored lists the tensors of a checkpoint of c: Tensors, with packed ones once.
func (c Config) Stored() []Stored {
	var list []Stored
	for _, t := range c.Tensors() {
		shape := []int{t.Stored, t.Cols}
		if t.Vector {
			shape = shape[:1]
		}
		if t.First == 0 {
			list = append(list, Stored{t.Name, shape, t})
		}
	}
	return list
}

// add appends the tensors of roles first to last of a layer.
func (a *Arch) add(list []Tensor, names TensorNames, first, last Role, layer int) []Tensor {
	var l *Layer
	if layer >= 0 {
		l = a.Layer(layer)
	}
	from := len(list)
	stored := map[string]int{}
	for r := first; r <= last; r++ {
		rows, cols := a.shape(r, l)
		if rows == 0 {
			continue
		}
		name, ok := names[r]
		if !ok {
			panic(fmt.Sprintf("BUG: models: a family with a %s and no name for it", r))
		}
		if strings.Contains(name, "%d") {
			name = fmt.Sprintf(name, layer)
		}
		list = append(list, Tensor{Role: r, Layer: layer, Rows: rows, Cols: cols, Vector: r.IsNorm() || r.IsBias(),
			Name: name, First: stored[name]})
		stored[name] += rows
	}
	for i := range list[from:] {
		list[from+i].Stored = stored[list[from+i].Name]
	}
	return list
}

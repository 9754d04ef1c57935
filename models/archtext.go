package models

import (
	"fmt"
	"strconv"
	"strings"
)

// String prints the description: a line for the embedding, one for every kind of layer with the layers that are of it,
// one for the head.
func (a *Arch) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "embed %d × %d%s\n", a.Vocab, a.Hidden, times(a.Embed.Scale))
	for kind := range a.Kinds {
		fmt.Fprintf(&b, "layers %s: %s\n", strings.Join(a.runs(kind), ", "), &a.Kinds[kind])
	}
	tied := ""
	if a.Head.Tied {
		tied = " tied"
	}
	fmt.Fprintf(&b, "head %s, %d × %d%s%s%s\n", a.Final, a.Vocab, a.Hidden, tied, times(a.Head.Scale),
		softCap(a.Head.SoftCap))
	return b.String()
}

// runs lists the layers of a kind, such as "0-4" and "6".
func (a *Arch) runs(kind int) (runs []string) {
	for first := 0; first < a.Layers(); {
		end := first + 1
		for end < a.Layers() && a.Pattern[end] == a.Pattern[first] {
			end++
		}
		switch {
		case a.Pattern[first] != kind:
		case end == first+1:
			runs = append(runs, strconv.Itoa(first))
		default:
			runs = append(runs, fmt.Sprintf("%d-%d", first, end-1))
		}
		first = end
	}
	return runs
}

// String prints a layer on one line: both branches, each with the norms before and behind it.
func (l *Layer) String() string {
	branch := func(pre Norm, what string, post Norm) string {
		s := what
		if pre.Kind != NoNorm {
			s = pre.String() + " → " + s
		}
		if post.Kind != NoNorm {
			s += " → " + post.String()
		}
		return s + times(l.Residual)
	}
	return branch(l.PreAttn, l.Attn.String(), l.PostAttn) + "; " + branch(l.PreMLP, l.MLP.String(), l.PostMLP)
}

// String prints heads, head dimension and what is not plain.
func (a *Attn) String() string {
	s := fmt.Sprintf("attention %d/%d × %d%s", a.Heads, a.KVHeads, a.HeadDim, times(a.Scale))
	s += flagged(a.QKVBias, " qkv-bias") + flagged(a.OBias, " o-bias")
	if a.QKNorm.Kind != NoNorm {
		s += flagged(!a.QKNormWide, " qk-norm ") + flagged(a.QKNormWide, " wide qk-norm ") + a.QKNorm.String()
	}
	if a.Rope.Dims > 0 {
		s += " " + a.Rope.String()
	} else {
		s += " no rope"
	}
	if a.Window > 0 {
		s += fmt.Sprintf(" window %d", a.Window)
	}
	if a.Grows.Every > 0 {
		s += fmt.Sprintf(" growing by %g every %d", a.Grows.Beta, a.Grows.Every)
	}
	return s + softCap(a.SoftCap)
}

// String prints the activation and the width.
func (m *MLP) String() string {
	return fmt.Sprintf("%s mlp %d%s", m.Act, m.Width, flagged(m.Bias, " bias"))
}

// String prints "none" or the norm with its constant.
func (n Norm) String() string {
	if n.Kind == NoNorm {
		return "none"
	}
	return fmt.Sprintf("rms %g%s", n.Eps, flagged(n.PlusOne, " 1+w"))
}

// String returns the name that config.json has for it.
func (a Act) String() string {
	switch a {
	case SiLU:
		return "silu"
	case GELUTanh:
		return "gelu_pytorch_tanh"
	}
	return fmt.Sprintf("activation %d", uint8(a))
}

func times(x float64) string {
	if x == 1 {
		return ""
	}
	return fmt.Sprintf(" ×%.6g", x)
}

func softCap(x float64) string {
	if x == 0 {
		return ""
	}
	return fmt.Sprintf(" softcap %g", x)
}

func flagged(on bool, text string) string {
	if on {
		return text
	}
	return ""
}

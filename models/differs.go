package models

import (
	"fmt"
	"strconv"
)

// Differs names the first field of config.json in which c and other are not the same mathematics with the same tensors,
// with both values; field is "" where there is none. Names and special tokens do not count.
func (c Config) Differs(other Config) (field, own, others string) {
	for i, s := range c.sizes() {
		if theirs := *other.sizes()[i].value; *s.value != theirs {
			return s.field, strconv.Itoa(*s.value), strconv.Itoa(theirs)
		}
	}
	for _, f := range []struct{ field, own, others string }{
		{"rms_norm_eps", formatFloat(c.NormEps), formatFloat(other.NormEps)},
		{"tie_word_embeddings", strconv.FormatBool(c.TieEmbeddings), strconv.FormatBool(other.TieEmbeddings)},
		{"rotary embedding", c.Rope.String(), other.Rope.String()},
	} {
		if f.own != f.others {
			return f.field, f.own, f.others
		}
	}
	a, b := c.Arch(), other.Arch()
	for l := range a.Layers() {
		if own, others := a.Layer(l).String(), b.Layer(l).String(); own != others {
			return fmt.Sprintf("layer %d", l), own, others
		}
	}
	if own, others := a.String(), b.String(); own != others {
		return "description", own, others
	}
	for i, t := range c.Stored() {
		if theirs := other.Stored()[i].Name; t.Name != theirs {
			return "tensor", t.Name, theirs
		}
	}
	return "", "", ""
}

package megakernel

import (
	"cmp"
	"slices"
	"strings"

	"github.com/mkgen/mkgen/internal/plural"
	"github.com/mkgen/mkgen/pipeline"
)

// otherWeights is the format of the layers' weights where it is not bf16, otherHead that of the LM head.
func (o *Options) otherWeights() string { return otherThanBF16(o.Weights) }
func (o *Options) otherHead() string    { return otherThanBF16(o.Head) }

// formats are those of the matrices.
func (o *Options) formats() []pipeline.Format {
	return append([]pipeline.Format{o.Head}, o.layerFormats()...)
}

// layerFormats are those of a layer's matrices.
func (o *Options) layerFormats() (all []pipeline.Format) {
	for _, name := range matrixNames {
		all = append(all, o.Weights.For(name))
	}
	return all
}

// matrixNames are the names of a layer's matrices.
var matrixNames = []string{"qkv", "o", "gate_up", "down"}

// SameFormats reports whether two choices of the layers' formats give every matrix the same one; "" is bf16.
func SameFormats(a, b pipeline.Format) bool {
	for _, name := range matrixNames {
		if cmp.Or(a.For(name), pipeline.FormatBF16) != cmp.Or(b.For(name), pipeline.FormatBF16) {
			return false
		}
	}
	return true
}

func otherThanBF16(f pipeline.Format) string {
	if f == pipeline.FormatBF16 {
		return ""
	}
	return string(f)
}

// completeFormats makes formats that are left open bf16, and refuses unknown ones.
func (o *Options) completeFormats() error {
	for _, f := range []struct {
		option string
		of     *pipeline.Format
	}{{"Weights", &o.Weights}, {"Head", &o.Head}} {
		*f.of = cmp.Or(*f.of, pipeline.FormatBF16)
		if strings.Contains(string(*f.of), ",") && f.of == &o.Weights {
			if err := severalFormats(*f.of); err != nil {
				return err
			}
			continue
		}
		if !slices.Contains(slices.Concat(pipeline.Formats(), pipeline.OwnFormats()), *f.of) {
			matrices := ""
			if f.of == &o.Weights {
				matrices = ", and of single matrices (i4g128,down=i8)"
			}
			return refuse(f.option, "found %q, want %s%s", string(*f.of), knownFormats(), matrices)
		}
	}
	return nil
}

// knownFormats lists the formats that a matrix can have, and says where those of a checkpoint's own codes are
// described.
func knownFormats() string {
	return plural.Or(pipeline.Formats()) +
		"; docs/weight-formats.md has those of checkpoints' codes (i8g32, i4g128-zeros-f16)"
}

// severalFormats refuses formats of single matrices that a kernel cannot have beside each other. The first is one of
// integers, e2m1 among them, and says how vectors are passed; e4m3 with scales of blocks has matrices of rows beside it
// nowhere.
func severalFormats(f pipeline.Format) error {
	known, names := slices.Concat(pipeline.Formats(), pipeline.OwnFormats()), matrixNames
	parts := strings.Split(string(f), ",")
	for i, part := range parts {
		name, format, of := strings.Cut(part, "=")
		if i == 0 {
			format, of = name, true
		} else if of = of && slices.Contains(names, name); of {
			names = slices.DeleteFunc(slices.Clone(names), func(n string) bool { return n == name })
		}
		switch g := pipeline.Format(format); {
		case !of:
			return refuse("Weights",
				"found %q in %q, want a format, and behind it MATRIX=FORMAT with each of qkv, o, gate_up and down once at most",
				part, string(f))
		case !slices.Contains(known, g):
			return refuse("Weights", "found %q in %q, want %s", format, string(f), knownFormats())
		case i == 0 && !g.Integers():
			return refuse("Weights", "found %q first in %q, want a format of integers, mxfp4 or nvfp4 first where matrices "+
				"differ, and bf16 and e4m3 behind it", format, string(f))
		case g.Blocks():
			return refuse("Weights", "found %q in %q, want formats without scales of blocks where matrices differ", format,
				string(f))
		}
	}
	return nil
}

// inputColumns is of how many columns the input of a product is a multiple at most, padding included.
func (o *Options) inputColumns() int {
	return max(o.Weights.Columns(), o.Head.Columns(), pipeline.GroupK)
}

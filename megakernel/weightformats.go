package megakernel

import (
	"cmp"
	"slices"

	"github.com/mkgen/mkgen/internal/plural"
	"github.com/mkgen/mkgen/pipeline"
)

// otherWeights is the format of the layers' weights where it is not bf16, otherHead that of the LM head.
func (o *Options) otherWeights() string { return otherThanBF16(o.Weights) }
func (o *Options) otherHead() string    { return otherThanBF16(o.Head) }

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
		if !slices.Contains(slices.Concat(pipeline.Formats(), pipeline.OwnFormats()), *f.of) {
			return refuse(f.option, "found %q, want %s", string(*f.of), plural.Or(pipeline.Formats()))
		}
	}
	return nil
}

// inputColumns is of how many columns the input of a product is a multiple at most, padding included.
func (o *Options) inputColumns() int {
	return max(o.Weights.Columns(), o.Head.Columns(), pipeline.GroupK)
}

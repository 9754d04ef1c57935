package tune

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"

	"github.com/mkgen/mkgen/megakernel"
	"github.com/mkgen/mkgen/models"
)

// Setup is what trials must agree in to be compared: everything that is not searched.
type Setup struct {
	Model    string `json:"model"`
	Shape    string `json:"shape"` // ShapeOf the model
	GPU      string `json:"gpu"`
	Compiler string `json:"compiler"` // "nvcc 13.0.88"; "none" on the executor
	Commit   string `json:"commit"`   // of the program, as in records
	Arch     string `json:"arch"`
	// Options are those that are not searched, as files have them (megakernel.Options.Recorded).
	Options  megakernel.Options `json:"options"`
	Contexts []int              `json:"contexts"` // tokens in the cache when a launch begins
	Weights  string             `json:"weights"`  // "random, seed 1"
	Tokens   int                `json:"tokens"`   // of a launch
	Launches int                `json:"launches"` // of each kernel at each context; in a search see Judged
}

// Of fills in what a kernel says.
func (s Setup) Of(mk *megakernel.Kernel) Setup {
	s.Model, s.Shape, s.Options = mk.Config.Name, ShapeOf(mk.Config), setupOptions(mk.Options).Recorded()
	return s
}

// setupOptions are the options that are not searched, for whatever steps.
func setupOptions(o megakernel.Options) (fixed megakernel.Options) {
	searched := everywhere()
	for _, row := range megakernel.OptionTable() {
		if row.Flag != MLPName &&
			!slices.ContainsFunc(searched, func(s megakernel.Option) bool { return s.Field == row.Field }) {
			row.Copy(&fixed, o)
		}
	}
	return fixed
}

// Rows is how many query rows a step has at most.
func (s Setup) Rows() int { return max(1, s.Options.Tokens) }

// ShapeOf identifies the sizes of a model that a kernel's plan follows from: 16
// hexadecimal digits. Names, special tokens and the rotary embedding are not in it.
func ShapeOf(c models.Config) string {
	sum := sha256.Sum256(fmt.Appendf(nil, "layers %d hidden %d intermediate %d heads %d kv %d head %d vocab %d tied %t %s",
		c.Layers, c.Hidden, c.Intermediate, c.Heads, c.KVHeads, c.HeadDim, c.Vocab, c.TieEmbeddings, c.DType))
	return hex.EncodeToString(sum[:8])
}

func (s Setup) check() error {
	for _, f := range []struct{ name, v string }{{"model", s.Model}, {"shape", s.Shape}, {"gpu", s.GPU},
		{"compiler", s.Compiler}, {"arch", s.Arch}} {
		if f.v == "" {
			return fmt.Errorf("%s is missing", f.name)
		}
	}
	switch {
	case s.Options.SMs < 1 || s.Options.Page < 1:
		return fmt.Errorf("options: sms is %d and page %d, want at least 1", s.Options.SMs, s.Options.Page)
	case len(s.Contexts) == 0:
		return fmt.Errorf("there are no contexts")
	case s.Launches < 1:
		return fmt.Errorf("launches is %d, want at least 1", s.Launches)
	}
	return nil
}

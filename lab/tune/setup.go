package tune

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"

	"github.com/mkgen/mkgen/megakernel"
	"github.com/mkgen/mkgen/models"
)

// Setup is what trials must agree in to be compared: everything that is not searched.
type Setup struct {
	Model     string `json:"model"`
	Shape     string `json:"shape"` // ShapeOf the model
	GPU       string `json:"gpu"`
	Compiler  string `json:"compiler"` // "nvcc 13.0.88"; "none" on the executor
	Commit    string `json:"commit"`   // of the program, as in records
	Arch      string `json:"arch"`
	SMs       int    `json:"sms"`
	Page      int    `json:"page"`
	Rows      int    `json:"rows"`
	KV        string `json:"kv"`
	Attention string `json:"attention"`
	Selection bool   `json:"selection"`
	Watchdog  string `json:"watchdog"`
	Launch    string `json:"launch,omitempty" absent:"single"`
	Contexts  []int  `json:"contexts"` // tokens in the cache when a launch begins
	Weights   string `json:"weights"`  // "random, seed 1"
	Tokens    int    `json:"tokens"`   // of a launch
	Launches  int    `json:"launches"` // of each kernel at each context; in a search see Judged
}

// Of fills in what a kernel says.
func (s Setup) Of(mk *megakernel.Kernel) Setup {
	o := mk.Options
	s.Model, s.Shape = mk.Config.Name, ShapeOf(mk.Config)
	s.SMs, s.Page, s.Rows, s.KV, s.Attention, s.Selection, s.Watchdog = o.SMs, o.Page, o.Tokens, string(o.KV), o.Attention, o.Selection, string(o.Watchdog)
	if o.Launch != megakernel.LaunchSingle {
		s.Launch = string(o.Launch)
	}
	return s
}

// ShapeOf identifies the sizes of a model that a kernel's plan follows from: 16
// hexadecimal digits. Names, special tokens and the rotary embedding are not in it.
func ShapeOf(c models.Config) string {
	sum := sha256.Sum256(fmt.Appendf(nil, "layers %d hidden %d intermediate %d heads %d kv %d head %d vocab %d tied %t %s",
		c.Layers, c.Hidden, c.Intermediate, c.Heads, c.KVHeads, c.HeadDim, c.Vocab, c.TieEmbeddings, c.DType))
	return hex.EncodeToString(sum[:8])
}

func (s Setup) check() error {
	for _, f := range []struct{ name, v string }{{"model", s.Model}, {"shape", s.Shape}, {"gpu", s.GPU}, {"compiler", s.Compiler}, {"arch", s.Arch}} {
		if f.v == "" {
			return fmt.Errorf("%s is missing", f.name)
		}
	}
	switch {
	case s.Rows < 1:
		return fmt.Errorf("rows is %d, want at least 1", s.Rows)
	case len(s.Contexts) == 0:
		return fmt.Errorf("there are no contexts")
	case s.Launches < 1:
		return fmt.Errorf("launches is %d, want at least 1", s.Launches)
	}
	return nil
}

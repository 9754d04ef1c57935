package bench

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"strings"

	"github.com/mkgen/mkgen/internal/jsonfile"
	"github.com/mkgen/mkgen/lab/gate"
	"github.com/mkgen/mkgen/megakernel"
	"github.com/mkgen/mkgen/pipeline"
)

// PrefillFile is what mkgen bench --prefill --cases writes, and with the cases of another system behind each of mkgen's
// what bench/compare.py --prefill does.
type PrefillFile struct {
	What    string           `json:"what"` // PrefillWhat
	GPU     string           `json:"gpu"`
	Driver  string           `json:"driver"`
	CUDA    string           `json:"cuda"`
	Commit  string           `json:"commit"`
	Gated   bool             `json:"gated"`
	Peak    float64          `json:"peak_tflop_s,omitempty"`    // of the datasheet, see DatasheetPeak
	Product float64          `json:"product_tflop_s,omitempty"` // of PyTorch's product of large matrices, in the same run
	Options PrefillOptions   `json:"options"`
	Apart   float64          `json:"apart"`                  // PrefillOutcome.Error
	Theirs  json.RawMessage  `json:"transformers,omitempty"` // what is to be known of the other system
	Cases   []PrefillFigures `json:"cases"`
}

// PrefillWhat is the field what of a PrefillFile.
const PrefillWhat = "prompts"

var prefillKind = jsonfile.Kind{Name: "a file of prompts", What: PrefillWhat}

// PrefillOptions are how the kernels were made.
type PrefillOptions struct {
	Compiler string `json:"compiler"`
	Prefill  []int  `json:"prefill"` // tokens of a step, of each prefill kernel
	Page     int    `json:"page"`
	SMs      int    `json:"sms"`
}

// PrefillFigures are what prompts of one length took one system. TFLOP/s count the layers' products and causal
// attention; Share and OfProduct are of the file's Peak and Product, 0 to 1.
type PrefillFigures struct {
	System    string       `json:"system"` // SystemMkgen, or what it is beside
	Model     string       `json:"model"`
	DType     string       `json:"dtype"`
	Batch     int          `json:"batch"`
	Prompt    int          `json:"prompt"`           // tokens
	Cached    int          `json:"cached,omitempty"` // tokens before them, which are not in the time
	First     float64      `json:"first_token_us"`   // the median, by the host's clock
	Rate      float64      `json:"tok_s"`
	FLOP      float64      `json:"flop"`
	TFLOPS    float64      `json:"tflop_s"`
	Share     float64      `json:"share,omitempty"`
	OfProduct float64      `json:"of_product,omitempty"`
	Over      float64      `json:"time_over_mkgen,omitempty"`
	Apart     float64      `json:"logits_apart,omitempty"` // from mkgen's: root mean square, of their standard deviation
	Logits    []float32    `json:"logits,omitempty"`       // every LogitsEvery-th behind the prompt; not of a record
	Gate      *gate.Record `json:"gate,omitempty"`         // none of figures that are UNGATED
	Rounds    []float64    `json:"rounds_us"`
}

// SystemMkgen is the system of the cases that mkgen measured.
const SystemMkgen = "mkgen"

// LogitsEvery is the distance of the logits that a PrefillFile has: enough of them to show another token or weight.
const LogitsEvery = 61

// DatasheetPeak is what NVIDIA's datasheet gives for products of dense matrices on a GPU of this product name, in
// TFLOP/s: of bf16, or twice as much of e4m3; 0 where it is not known.
func DatasheetPeak(gpu string, inputs pipeline.Format) float64 {
	peak := 0.0
	switch {
	case strings.Contains(gpu, "H100 PCIe"):
		peak = 756
	case strings.Contains(gpu, "H100 NVL"):
		peak = 835
	case strings.Contains(gpu, "H100"), strings.Contains(gpu, "H200"):
		peak = 989.4
	}
	if inputs == pipeline.FormatE4M3 {
		peak *= 2
	}
	return peak
}

// ProductRate is what PyTorch's product of 8192 tokens with a layer's MLP of llama3-8b sustained in bf16 on a GPU of
// this product name, in TFLOP/s, beside prompts (bench/compare.py --prefill, docs/prefill.md); 0 where that was not
// measured.
func ProductRate(gpu string, inputs pipeline.Format) float64 {
	switch {
	case inputs == pipeline.FormatE4M3:
		return 0
	case strings.Contains(gpu, "H100 80GB HBM3"):
		return 695
	case strings.Contains(gpu, "H200"):
		return 665
	}
	return 0
}

// File is the outcome of a suite on a machine with these facts, by the program of that commit.
func (o *PrefillOutcome) File(s *PrefillSuite, facts Facts, commit string) *PrefillFile {
	mk := s.Decode[0]
	f := &PrefillFile{What: PrefillWhat, Gated: o.Gate != nil && o.Gate.Err() == nil, GPU: facts.GPU, Driver: facts.Driver,
		CUDA: facts.CUDA, Commit: commit, Peak: DatasheetPeak(facts.GPU, s.inputs()), Apart: significant(o.Error),
		Options: PrefillOptions{Compiler: facts.Compiler, Page: mk.KV.Page, SMs: mk.Options.SMs}}
	for _, p := range s.Prefill {
		f.Options.Prefill = append(f.Options.Prefill, p.Options.Tokens)
	}
	for i := range o.Cases {
		c := o.Cases[i].figures(mk)
		if f.Peak > 0 {
			c.Share = significant(c.TFLOPS / f.Peak)
		}
		if o.Gate != nil {
			c.Gate = &o.Gate.Gate
		}
		f.Cases = append(f.Cases, c)
	}
	return f
}

func (c *PrefillCase) figures(mk *megakernel.Kernel) PrefillFigures {
	t := c.Seconds()
	f := PrefillFigures{System: SystemMkgen, Model: mk.Config.Name, DType: dtypeOf(mk.Config, mk.Options.Weights,
		mk.Options.Head), Batch: 1, Prompt: c.Tokens, Cached: c.Cached, First: significant(1e6 * t),
		Rate: significant(float64(c.Tokens) / t), FLOP: c.FLOP, TFLOPS: significant(c.FLOP / t / 1e12), Logits: c.Logits}
	for _, d := range c.First {
		f.Rounds = append(f.Rounds, significant(1e6*d.Seconds()))
	}
	return f
}

// Write writes the file, whole or not at all.
func (f *PrefillFile) Write(path string) error { return jsonfile.Write(path, f) }

// CheckPrefillFile refuses data that are no PrefillFile, or, where what replaces it is not gated, one that is.
func CheckPrefillFile(data []byte, gated bool) error {
	f := &PrefillFile{}
	if err := jsonfile.Parse(data, f, prefillKind); err != nil {
		return err
	}
	if f.Gated && !gated {
		return errors.New("it passed the gate, this one would be " + Ungated)
	}
	return nil
}

// ParsePrefill reads a PrefillFile strictly; what Check finds is an error.
func ParsePrefill(data []byte) (*PrefillFile, error) {
	return jsonfile.ParseChecked[PrefillFile](data, prefillKind)
}

// Check returns nil when the figures agree with each other; else all that is wrong, joined.
func (f *PrefillFile) Check() error {
	var errs []error
	bad := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	if f.GPU == "" || f.Commit == "" || f.Options.Compiler == "" && f.Peak > 0 {
		bad("gpu is %q, commit %q, compiler %q", f.GPU, f.Commit, f.Options.Compiler)
	}
	if len(f.Cases) == 0 {
		bad("there are no cases")
	}
	near := func(got, want float64) bool { return math.Abs(got-want) <= 1e-4*math.Abs(want) }
	ours := 0.0
	for i := range f.Cases {
		c := &f.Cases[i]
		if c.System == SystemMkgen {
			ours = c.First
		}
		rate := c.FLOP / c.First / 1e6
		switch {
		case c.Model == "" || c.Prompt < 1 || !(c.First > 0) || len(c.Rounds) == 0:
			bad("case %d: model %q, %d tokens in %v µs, %d rounds", i, c.Model, c.Prompt, c.First, len(c.Rounds))
		case !near(c.First, median(c.Rounds)):
			bad("case %d: first_token_us is %v, the rounds' median %v", i, c.First, median(c.Rounds))
		case !near(c.TFLOPS, rate) || !near(c.Rate, 1e6*float64(c.Prompt)/c.First):
			bad("case %d: tflop_s is %v and tok_s %v, from the time %v and %v", i, c.TFLOPS, c.Rate, rate,
				1e6*float64(c.Prompt)/c.First)
		case f.Peak > 0 && (!near(c.Share, rate/f.Peak) || c.Share > 1):
			bad("case %d: share is %v, from tflop_s %v", i, c.Share, rate/f.Peak)
		case c.Over != 0 && !near(c.Over, c.First/ours):
			bad("case %d: time_over_mkgen is %v, from the times %v", i, c.Over, c.First/ours)
		case f.Gated && c.System == SystemMkgen && (c.Gate == nil || !c.Gate.Passed):
			bad("case %d: it did not pass the gate", i)
		case f.Gated && c.Gate != nil && c.Gate.Launches != nil:
			for _, problem := range c.Gate.Launches.Problems() {
				bad("case %d: %s", i, problem)
			}
		}
	}
	return errors.Join(errs...)
}

package bench

import (
	"context"
	"fmt"
	"io"
	"math"
	"slices"
	"time"

	"github.com/mkgen/mkgen/engine/batch"
	"github.com/mkgen/mkgen/engine/runtime"
	"github.com/mkgen/mkgen/lab/gate"
	"github.com/mkgen/mkgen/megakernel"
	"github.com/mkgen/mkgen/pipeline"
	"github.com/mkgen/mkgen/tasks/attention"
)

// PrefillSuite measures the time to a prompt's first token, which goes through prefill kernels.
type PrefillSuite struct {
	Machine Machine
	Decode  []*megakernel.Kernel // of several rows, and of one
	Prefill []*megakernel.Prefill
	Weights func(ctx context.Context) (runtime.Weights, error)
	Lengths []int // of prompts, each at least 2 and with Cached within the model's positions
	Cached  int   // tokens of the cache before each prompt, whose time is that of what comes behind them
	Rounds  int   // prompts of each length, of which the median counts
	// Reference and Rules are of the gate, which wants Tensors, the weights; without a reference there is none.
	Reference *gate.Reference
	Rules     gate.Rules
	Tensors   megakernel.Tensors
	// Progress, unless nil, hears what is done next.
	Progress func(what string)
}

// PrefillCase is what prompts of one length took.
type PrefillCase struct {
	Tokens int
	First  []time.Duration // from the first launch to the first token
	Cached int             // tokens before them
	FLOP   float64         // of the layers' products and of causal attention
	Logits []float32       // every LogitsEvery-th of those behind the prompt
}

// Seconds is the median time.
func (c *PrefillCase) Seconds() float64 {
	var all []float64
	for _, d := range c.First {
		all = append(all, d.Seconds())
	}
	return median(all)
}

// PrefillOutcome is what a suite measured. Error is the root mean square of what the logits behind a prompt differ by
// from those of the decode kernels alone, over theirs.
type PrefillOutcome struct {
	Cases  []PrefillCase
	Error  float64
	Agreed int             // tokens of the prompt it is of
	Most   float64         // the largest Error that passes
	Gate   *gate.Report    // nil without a reference
	Inputs pipeline.Format // of products, bf16 or e4m3
}

// MaxPrefillError is the largest error that passes: kernels of other numbers of rows differ by bf16 roundings of what
// they hand on, 2 % of the logits of a whole model; a wrong tile, token or scale by as much as the logits.
const MaxPrefillError = 0.05

// MaxCachedError is MaxPrefillError with a KV cache in e4m3, where a code that such a rounding turns the other way is
// up to an eighth off: 3.8 % of the logits of a model of 4 layers, 5.4 % of one of 16, 4.5 % of one of 32.
const MaxCachedError = 0.15

// MaxCodedError is MaxPrefillError where the prefill kernels' inputs are e4m3, which has 3 bits behind the first.
const MaxCodedError = 0.5

// coded is whether the prefill kernels' inputs are e4m3.
func (s *PrefillSuite) coded() bool {
	return slices.ContainsFunc(s.Prefill, func(p *megakernel.Prefill) bool {
		return p.Options.Activations == pipeline.FormatE4M3
	})
}

// inputs is the format of the inputs of the prefill kernels' products.
func (s *PrefillSuite) inputs() pipeline.Format {
	if s.coded() {
		return pipeline.FormatE4M3
	}
	return pipeline.FormatBF16
}

// most is the largest error that passes.
func (s *PrefillSuite) most() float64 {
	switch {
	case s.coded():
		return MaxCodedError
	case s.Decode[0].Options.KV == attention.KVE4M3:
		return MaxCachedError
	}
	return MaxPrefillError
}

// agreedTokens are the lengths of the prompts that both ways are compared on: a step of several tiles of tokens, not
// full, and one of one.
var agreedTokens = []int{333, 75}

// Run runs the suite. Logits that are too far apart are an error, and nothing is measured. A gate that is not passed is
// none: see PrefillOutcome.Gate.
func (s *PrefillSuite) Run(ctx context.Context) (*PrefillOutcome, error) {
	r, err := s.open(ctx)
	if err != nil {
		return nil, err
	}
	defer r.close()
	out := &PrefillOutcome{Most: s.most(), Inputs: s.inputs()}
	s.say("logits of both ways")
	for _, n := range agreedTokens {
		n = s.Cached + min(n, slices.Max(s.Lengths))
		apart, err := r.agree(ctx, n)
		if err != nil {
			return nil, err
		}
		if !(apart <= s.most()) {
			return nil, fmt.Errorf("the logits behind %d tokens differ by %.2g of those without a prefill kernel, want at most %g", n, apart, s.most())
		}
		if out.Agreed == 0 || apart > out.Error {
			out.Error, out.Agreed = apart, n
		}
	}
	if s.Reference != nil {
		if out.Gate, err = r.judge(ctx); err != nil {
			return nil, err
		}
	}
	for _, n := range s.Lengths {
		s.say(fmt.Sprintf("prompts of %d tokens", n))
		c := PrefillCase{Tokens: n, Cached: s.Cached, FLOP: promptFLOP(s.Decode[0], n, s.Cached)}
		if err := r.prompt(ctx, 0, s.Cached, r.bundle.PrefillRows()); err != nil {
			return nil, err
		}
		for i := range s.Rounds + 1 {
			begin := time.Now()
			if err := r.prompt(ctx, s.Cached, s.Cached+n, r.bundle.PrefillRows()); err != nil {
				return nil, err
			}
			if i > 0 { // the first one warms up
				c.First = append(c.First, time.Since(begin))
			}
		}
		if c.Logits, err = r.someLogits(); err != nil {
			return nil, err
		}
		out.Cases = append(out.Cases, c)
	}
	return out, nil
}

func (s *PrefillSuite) say(what string) {
	if s.Progress != nil {
		s.Progress(what)
	}
}

// promptFLOP is the arithmetic of n tokens behind cached ones: two operations a weight of the layers, and of
// attention's two products over what a token sees.
func promptFLOP(mk *megakernel.Kernel, n, cached int) float64 {
	c, weights := &mk.Config, 0.0
	for _, m := range mk.Plan.Layer {
		weights += float64(m.Rows) * float64(m.K)
	}
	// n·(n+1)/2 pairs and n·cached, 4 operations a dimension
	attention := 2 * float64(n+1+2*cached) * float64(c.Heads*c.HeadDim)
	return float64(c.Layers) * float64(n) * (2*weights + attention)
}

// prefillRun is a suite's kernels, open.
type prefillRun struct {
	s       *PrefillSuite
	bundle  *runtime.Bundle
	devices []Loaded // of the decode kernels, then of the prefill kernels
	pages   []uint32 // of the cache but its guard, which is the last one
	vocab   int
}

func (s *PrefillSuite) open(ctx context.Context) (_ *prefillRun, err error) {
	r := &prefillRun{s: s, vocab: s.Decode[0].Config.Vocab}
	defer func() {
		if err != nil {
			r.close()
		}
	}()
	var members []runtime.Member
	for _, mk := range s.Decode {
		dev, err := s.Machine.Load(ctx, mk.IR)
		if err != nil {
			return nil, err
		}
		r.devices = append(r.devices, dev)
		members = append(members, runtime.Member{Kernel: mk, Device: dev})
	}
	var long []Loaded
	for _, p := range s.Prefill {
		dev, err := s.Machine.Load(ctx, p.IR)
		if err != nil {
			return nil, err
		}
		r.devices, long = append(r.devices, dev), append(long, dev)
	}
	w, err := s.Weights(ctx)
	if err != nil {
		return nil, err
	}
	page := s.Decode[0].KV.Page
	n := (s.Cached + slices.Max(s.Lengths) + page - 1) / page
	if s.Reference != nil {
		n = max(n, gate.RaggedPages(s.Reference, page))
	}
	table := gate.ShuffledTable(n + 1)
	r.pages = table[:n]
	if r.bundle, err = runtime.OpenBundle(ctx, members, w,
		runtime.Options{Pages: n + 1, Guard: table[n], Steps: 1}); err != nil {
		return nil, err
	}
	for i, p := range s.Prefill {
		if err := r.bundle.AddPrefill(p, long[i]); err != nil {
			return nil, err
		}
	}
	r.bundle.SetHangTimeout(10 * time.Second)
	return r, r.bundle.SetEnds(nil)
}

// close closes the devices, the owner of what is shared last.
func (r *prefillRun) close() {
	for _, d := range slices.Backward(r.devices) {
		_ = d.Close()
	}
}

// prompt feeds tokens up to n behind cached ones, some at a time; the last launch chooses.
func (r *prefillRun) prompt(ctx context.Context, cached, n, together int) error {
	tokens := make([]int, n)
	for i := range tokens {
		tokens[i] = token(7*i%r.vocab, r.vocab)
	}
	for cached < n {
		feed := min(together, n-cached)
		quiet := cached+feed < n
		_, err := r.bundle.Run(ctx,
			batch.StepRequest{Steps: 1, Quiet: quiet,
				Sequences: []batch.Sequence{{New: tokens[cached : cached+feed], Cached: cached, Pages: r.pages}}})
		if err != nil {
			return err
		}
		cached += feed
	}
	return nil
}

// someLogits are every LogitsEvery-th of the last launch's.
func (r *prefillRun) someLogits() (some []float32, err error) {
	all := make([]float32, r.vocab)
	err = r.bundle.Logits(0, all)
	for i := 0; i < r.vocab; i += LogitsEvery {
		some = append(some, all[i])
	}
	return some, err
}

// agree is how far the logits behind n tokens differ between both ways.
func (r *prefillRun) agree(ctx context.Context, n int) (float64, error) {
	var logits [2][]float32
	for i, together := range []int{r.bundle.Rows(), r.bundle.PrefillRows()} {
		if err := r.prompt(ctx, 0, n, together); err != nil {
			return 0, err
		}
		logits[i] = make([]float32, r.vocab)
		if err := r.bundle.Logits(0, logits[i]); err != nil {
			return 0, err
		}
	}
	var difference, size float64
	for i, x := range logits[0] {
		d := float64(logits[1][i]) - float64(x)
		difference, size = difference+d*d, size+float64(x)*float64(x)
	}
	return math.Sqrt(difference / size), nil
}

// Write writes the outcome as a table.
func (o *PrefillOutcome) Write(w io.Writer, facts Facts) error {
	if _, err := fmt.Fprintf(w,
		"Logits behind %d tokens: %.2g of those without a prefill kernel apart, at most %g passes.\n\n", o.Agreed, o.Error,
		o.Most); err != nil {
		return err
	}
	head, shares := "prompt  first token  tokens/s  TFLOP/s", []float64{}
	for _, rate := range []float64{DatasheetPeak(facts.GPU, o.Inputs), ProductRate(facts.GPU, o.Inputs)} {
		if rate > 0 {
			head += fmt.Sprintf("  %8s", fmt.Sprintf("of %g", rate))
			shares = append(shares, rate)
		}
	}
	if len(o.Cases) > 0 && o.Cases[0].Cached > 0 {
		if _, err := fmt.Fprintf(w, "Behind %d cached tokens:\n", o.Cases[0].Cached); err != nil {
			return err
		}
	}
	if facts.Executor {
		head += "  (of the executor: no measure of a GPU)"
	}
	if _, err := fmt.Fprintln(w, head); err != nil {
		return err
	}
	for i := range o.Cases {
		c := &o.Cases[i]
		t := c.Seconds()
		share := ""
		for _, of := range shares {
			share += fmt.Sprintf("  %6.1f %%", 100*c.FLOP/t/1e12/of)
		}
		if _, err := fmt.Fprintf(w, "%6d  %8.2f ms  %8.0f  %7.1f%s\n", c.Tokens, 1e3*t, float64(c.Tokens)/t, c.FLOP/t/1e12,
			share); err != nil {
			return err
		}
	}
	if len(shares) < 2 {
		return nil
	}
	_, err := fmt.Fprintf(w, "\n%g TFLOP/s are the datasheet's peak; PyTorch's product of large matrices\n"+
		"sustains %g on such a GPU.\n", shares[0], shares[1])
	return err
}

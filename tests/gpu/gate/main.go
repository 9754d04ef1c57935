//go:build cuda

// Command gate judges an emitted kernel on a GPU against Hugging Face
// transformers: it feeds the reference's tokens (tests/gpu/reference.py) to the
// kernel and to kernels with planted faults, and writes a record. The exit code
// is 1 when the gate is not passed, a fault is missed or a repeated sequence
// gives other bits; the record is written all the same.
//
// With -splits 1,4,16,64 it judges, without faults, the kernels of as many KV
// splits (tests/gpu/kernels -splits N writes one): the evidence that
// docs/numerics.md asks a GPU for.
package main

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"log"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/mkgen/mkgen/internal/revision"
	"github.com/mkgen/mkgen/megakernel"
	"github.com/mkgen/mkgen/megakernel/reference"
	"github.com/mkgen/mkgen/megakernel/runtime"
	"github.com/mkgen/mkgen/megakernel/runtime/cuda"
	"github.com/mkgen/mkgen/models"
	"github.com/mkgen/mkgen/models/synth"
	"github.com/mkgen/mkgen/tests/gate"
)

// record is what a run leaves under bench/results.
type record struct {
	GPU     string         `json:"gpu"`
	Driver  string         `json:"driver"`
	CUDA    string         `json:"cuda"`
	Commit  string         `json:"commit"`
	Options map[string]any `json:"options"`
	Cases   []caseRecord   `json:"cases"`
}

type caseRecord struct {
	Model        string      `json:"model"`
	DType        string      `json:"dtype"`
	Batch        int         `json:"batch"`
	Contexts     []int       `json:"contexts"` // length of each sequence
	Transformers string      `json:"transformers"`
	WeightsHash  string      `json:"weights_hash"`
	Identical    bool        `json:"bit_identical"` // the first sequence run twice gave the same logits, bit for bit
	Gate         gate.Record `json:"gate"`
	Details      []verdict   `json:"details"`
}

// verdict is one run over the reference.
type verdict struct {
	Fault   string      `json:"fault,omitempty"`
	KLOurs  gate.Number `json:"kl_ours"`
	KLRef   gate.Number `json:"kl_reference"`
	Flips   int         `json:"flips"`
	Passed  bool        `json:"passed"`
	Reasons []string    `json:"reasons,omitempty"`
}

func main() {
	model := flag.String("model", "tiny", "registered model")
	kernels := flag.String("kernels", "out/kernels", "what tests/gpu/kernels wrote")
	dir := flag.String("reference", "", "what tests/gpu/reference.py wrote")
	out := flag.String("record", "", "file to write the record to")
	splits := flag.String("splits", "", "numbers of KV splits to judge in place of the gate, as 1,16,64")
	flag.Parse()
	if err := run(*model, *kernels, *dir, *splits, *out); err != nil {
		log.Fatal(err)
	}
}

func run(model, kernels, dir, splits, out string) error {
	ref, err := gate.OpenReference(dir)
	if err != nil {
		return err
	}
	dev, err := cuda.Open(0)
	if err != nil {
		return err
	}
	defer dev.Close()
	if splits != "" {
		return sweep(model, kernels, splits, dev, ref, out)
	}
	b, err := newBench(model, kernels, megakernel.Options{}, dev, ref)
	if err != nil {
		return err
	}
	defer b.gpu.Close()
	ours, err := b.judge(nothing)
	if err != nil {
		return err
	}
	identical, err := b.repeats()
	if err != nil {
		return err
	}
	details := []verdict{describe("", ours)}
	faults := map[string]gate.Result{}
	for _, name := range gate.Faults() {
		if faults[name], err = b.faulty(name); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		details = append(details, describe(name, faults[name]))
	}
	r := b.record(ref, gate.NewRecord(ours, faults), details)
	r.Cases[0].Identical = identical
	text, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return err
	}
	fmt.Println(string(text))
	if out != "" {
		if err := os.MkdirAll(filepath.Dir(out), 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(out, append(text, '\n'), 0o644); err != nil {
			return err
		}
	}
	switch c := &r.Cases[0]; {
	case !c.Identical:
		return errors.New("the first sequence run twice gave different logits")
	case !c.Gate.Passed:
		return fmt.Errorf("the gate is not passed: %s", strings.Join(c.Gate.Reasons, "; "))
	}
	return nil
}

func describe(name string, r gate.Result) verdict {
	return verdict{name, gate.Number(r.KLOurs), gate.Number(r.KLReference), r.Flips, r.Passed, r.Reasons}
}

// bench is one model loaded on a GPU.
type bench struct {
	config  models.Config
	options megakernel.Options // as asked for
	mk      *megakernel.Kernel
	kernels string
	dev     *cuda.Device
	gpu     *runtime.GPU
	s       *runtime.Session
	ref     *gate.Reference
	weights *synth.Weights
	table   []uint32
	digest  string // of the last sequence's logits
}

func newBench(model, kernels string, o megakernel.Options, dev *cuda.Device, ref *gate.Reference) (*bench, error) {
	c, err := models.Lookup(model)
	if err != nil {
		return nil, err
	}
	b := &bench{config: c, options: o, kernels: kernels, dev: dev, ref: ref}
	dims := reference.ShapeOf(c).Dims()
	hash, err := synth.SampleHash(ref.Seed, synth.Llama(dims), nil)
	if err != nil {
		return nil, err
	}
	if hash != ref.WeightsHash {
		return nil, fmt.Errorf("the reference's weights have hash %s, those of %s with seed %d have %s", ref.WeightsHash, model, ref.Seed, hash)
	}
	if b.mk, err = megakernel.Build(c, o); err != nil {
		return nil, err
	}
	code, err := os.ReadFile(b.cubin(""))
	if err != nil {
		return nil, err
	}
	if b.gpu, err = runtime.NewGPU(b.mk.IR, dev, code); err != nil {
		return nil, err
	}
	longest := 0
	for _, q := range ref.Sequences {
		longest = max(longest, q.Length)
	}
	pages := (longest + b.mk.KV.Page - 1) / b.mk.KV.Page
	for i := range pages { // a fixed permutation: 7 and pages have no common divisor, or the order is reversed
		p := uint32(pages - 1 - i)
		if pages%7 != 0 {
			p = uint32((i*7 + 3) % pages)
		}
		b.table = append(b.table, p)
	}
	b.weights = synth.NewWeights(ref.Seed, dims)
	b.s, err = runtime.NewSession(b.mk, b.gpu, b.weights, pages, slices.Clone(b.table), 0xffff0000)
	return b, err
}

func (b *bench) cubin(fault string) string {
	name := b.config.Name
	if n := b.options.Splits; n != 0 {
		name += fmt.Sprintf("-splits%d", n) // as package choice names it
	}
	if fault != "" {
		name += "+" + fault
	}
	return filepath.Join(b.kernels, name+".cubin")
}

func (b *bench) record(ref *gate.Reference, g gate.Record, details []verdict) record {
	facts := b.dev.Facts()
	r := record{GPU: facts.Name, Driver: cuda.DriverRelease(), CUDA: fmt.Sprintf("%d.%d", facts.Driver/1000, facts.Driver%1000/10), Commit: revision.String()}
	r.Options = map[string]any{"sms": b.mk.Options.SMs, "page": b.mk.Options.Page, "splits": b.mk.Options.Splits, "stages": b.mk.Options.Stages,
		"stage_bytes": b.mk.Options.StageBytes, "in_flight": b.mk.Options.InFlight, "consumers": b.mk.Options.Consumers, "pages": "shuffled"}
	c := caseRecord{Model: b.config.Name, DType: "bf16", Batch: 1, Transformers: ref.Transformers, WeightsHash: ref.WeightsHash, Gate: g, Details: details}
	for _, q := range ref.Sequences {
		c.Contexts = append(c.Contexts, q.Length)
	}
	r.Cases = []caseRecord{c}
	return r
}

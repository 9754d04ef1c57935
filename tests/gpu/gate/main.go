//go:build cuda

// Command gate judges an emitted kernel on a GPU against Hugging Face
// transformers: it feeds the reference's tokens (tests/gpu/reference.py) to the
// kernel and to kernels with planted faults, and writes a record. The exit code
// is 1 when the gate is not passed, a fault is missed or a repeated sequence
// gives other bits; the record is written all the same.
//
//	go run ./tests/gpu/kernels -model llama3.2-1b -rows 8 -faults -o out/kernels
//	scripts/build-cuda build -o out/gate ./tests/gpu/gate
//	out/gate -model llama3.2-1b -rows 8 -kernels out/kernels -reference DIR -record FILE
package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"log"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/mkgen/mkgen/engine/runtime"
	"github.com/mkgen/mkgen/engine/runtime/cuda"
	"github.com/mkgen/mkgen/internal/revision"
	"github.com/mkgen/mkgen/kv"
	"github.com/mkgen/mkgen/lab/bench"
	"github.com/mkgen/mkgen/lab/gate"
	"github.com/mkgen/mkgen/megakernel"
	"github.com/mkgen/mkgen/models/synth"
	"github.com/mkgen/mkgen/tests/gpu/choice"
)

func main() {
	c := choice.Flags()
	kernels := flag.String("kernels", "out/kernels", "what tests/gpu/kernels wrote")
	dir := flag.String("reference", "", "what tests/gpu/reference.py wrote")
	out := flag.String("record", "", "file to write the record to")
	pin := flag.Int("pin", 0,
		"with -rows, cut every sequence's KV at multiples of n tokens, and compare sequences alone and among others")
	flag.Parse()
	if err := run(c, *kernels, *dir, *out, *pin); err != nil {
		log.Fatal(err)
	}
}

func run(ch *choice.Choice, kernels, dir, out string, pin int) error {
	ref, err := gate.OpenReference(dir)
	if err != nil {
		return err
	}
	dev, err := cuda.Open(0)
	if err != nil {
		return err
	}
	defer dev.Close()
	b, err := load(ch, kernels, dev, ref, pin)
	if err != nil {
		return err
	}
	defer b.gpu.Close()
	report, err := b.Judge(context.Background(), ref, gate.DefaultRules())
	if err != nil {
		return err
	}
	text, err := json.MarshalIndent(b.file(dev.Facts(), b.newCase(ref, report)), "", "  ")
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
	return report.Err()
}

// subject is a gate.Subject or a gate.RaggedSubject.
type subject interface {
	Judge(ctx context.Context, ref *gate.Reference, rules gate.Rules) (*gate.Report, error)
}

// loaded is one model's kernel on a GPU.
type loaded struct {
	subject
	choice  *choice.Choice
	kernel  *megakernel.Kernel
	kernels string
	gpu     *runtime.GPU
	pin     int
}

func load(ch *choice.Choice, kernels string, dev *cuda.Device, ref *gate.Reference, pin int) (*loaded, error) {
	mk, err := ch.Build(megakernel.NoFault)
	if err != nil {
		return nil, err
	}
	b := &loaded{choice: ch, kernel: mk, kernels: kernels, pin: pin}
	weights := synth.NewWeights(ref.Seed, mk.Config)
	if err := ref.Matches(mk.Config, weights, &ref.Seed); err != nil {
		return nil, err
	}
	code, err := os.ReadFile(b.cubin(megakernel.NoFault))
	if err != nil {
		return nil, err
	}
	if b.gpu, err = runtime.NewGPU(mk.IR, dev, code); err != nil {
		return nil, err
	}
	progress := func(what string) { log.Print("judging ", what) }
	if mk.Ragged() {
		pages := gate.RaggedPages(ref, mk.KV.Page)
		s, err := runtime.Open(context.Background(), mk, b.gpu, runtime.FromTensors(weights, runtime.LoadOptions{}),
			runtime.Options{Pages: pages, Pin: pin, Costs: kv.EagerCosts(), Epoch: 0xffff0000})
		if err != nil {
			return nil, err
		}
		s.HangTimeout = hangTimeout
		b.subject = &gate.RaggedSubject{Kernel: mk, Weights: weights,
			Runner: &bench.GateRunner{Session: s, Device: b.gpu, Vocab: mk.Config.Vocab}, Rows: mk.Options.Tokens, Pages: pages,
			Pinned: pin > 0, Write: b.gpu.Write, Plant: b.plant, Progress: progress}
		return b, nil
	}
	pages := (ref.Longest() + mk.KV.Page - 1) / mk.KV.Page
	table := gate.ShuffledTable(pages)
	s, err := runtime.NewSequence(mk, b.gpu, weights, pages, slices.Clone(table), 0xffff0000)
	if err != nil {
		return nil, err
	}
	s.HangTimeout = hangTimeout
	b.subject = &gate.Subject{Kernel: mk, Weights: weights, Session: s, Table: table, Write: b.gpu.Write, Plant: b.plant,
		Progress: progress}
	return b, nil
}

// hangTimeout is how long a launch may make no step.
const hangTimeout = 20 * time.Second

func (b *loaded) newCase(ref *gate.Reference, report *gate.Report) gate.Case {
	c := gate.NewCase(b.kernel.Config.Name, "bf16", ref, report)
	if b.kernel.Ragged() {
		c.Batch, c.Tokens = min(gate.MostAtOnce, len(ref.Sequences)), b.kernel.Options.Tokens
	}
	return c
}

// plant swaps in the cubin with the fault.
func (b *loaded) plant(_ context.Context, fault megakernel.Fault) (func(), error) {
	code, err := os.ReadFile(b.cubin(fault))
	if err != nil {
		return nil, err
	}
	return b.gpu.Swap(code)
}

func (b *loaded) cubin(fault megakernel.Fault) string {
	return filepath.Join(b.kernels, b.choice.Name(fault)+".cubin")
}

func (b *loaded) file(facts cuda.Facts, c gate.Case) gate.File {
	o := b.kernel.Options
	return gate.File{GPU: facts.Name, Driver: cuda.DriverRelease(),
		CUDA: fmt.Sprintf("%d.%d", facts.Driver/1000, facts.Driver%1000/10), Commit: revision.String(),
		Options: map[string]any{"sms": o.SMs, "tokens": o.Tokens, "pin": b.pin, "page": o.Page, "splits": o.Splits,
			"stages": o.Stages, "stage_bytes": o.StageBytes, "in_flight": o.InFlight, "consumers": o.Consumers,
			"pages": "shuffled"},
		Cases: []gate.Case{c}}
}

//go:build cuda

// Command gate judges an emitted kernel on a GPU against Hugging Face
// transformers: it feeds the reference's tokens (tests/gpu/reference.py) to the
// kernel and to kernels with planted faults, and writes a record. The exit code
// is 1 when the gate is not passed, a fault is missed or a repeated sequence
// gives other bits; the record is written all the same.
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

	"github.com/mkgen/mkgen/internal/revision"
	"github.com/mkgen/mkgen/megakernel"
	"github.com/mkgen/mkgen/megakernel/gate"
	"github.com/mkgen/mkgen/megakernel/reference"
	"github.com/mkgen/mkgen/megakernel/runtime"
	"github.com/mkgen/mkgen/megakernel/runtime/cuda"
	"github.com/mkgen/mkgen/models"
	"github.com/mkgen/mkgen/models/synth"
)

func main() {
	model := flag.String("model", "tiny", "registered model")
	kernels := flag.String("kernels", "out/kernels", "what tests/gpu/kernels wrote")
	dir := flag.String("reference", "", "what tests/gpu/reference.py wrote")
	out := flag.String("record", "", "file to write the record to")
	flag.Parse()
	if err := run(*model, *kernels, *dir, *out); err != nil {
		log.Fatal(err)
	}
}

func run(model, kernels, dir, out string) error {
	ref, err := gate.OpenReference(dir)
	if err != nil {
		return err
	}
	dev, err := cuda.Open(0)
	if err != nil {
		return err
	}
	defer dev.Close()
	b, err := load(model, kernels, dev, ref)
	if err != nil {
		return err
	}
	defer b.gpu.Close()
	report, err := b.subject.Judge(context.Background(), ref, gate.DefaultRules())
	if err != nil {
		return err
	}
	text, err := json.MarshalIndent(b.file(dev.Facts(), gate.NewCase(b.config.Name, "bf16", ref, report)), "", "  ")
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

// bench is one model loaded on a GPU.
type bench struct {
	config  models.Config
	kernels string
	gpu     *runtime.GPU
	subject gate.Subject
}

func load(model, kernels string, dev *cuda.Device, ref *gate.Reference) (*bench, error) {
	c, err := models.Lookup(model)
	if err != nil {
		return nil, err
	}
	b := &bench{config: c, kernels: kernels}
	weights := synth.NewWeights(ref.Seed, reference.ShapeOf(c).Dims())
	if err := ref.Matches(c, weights, &ref.Seed); err != nil {
		return nil, err
	}
	mk, err := megakernel.Build(c, megakernel.Options{})
	if err != nil {
		return nil, err
	}
	code, err := os.ReadFile(b.cubin(megakernel.NoFault))
	if err != nil {
		return nil, err
	}
	if b.gpu, err = runtime.NewGPU(mk.IR, dev, code); err != nil {
		return nil, err
	}
	pages := (ref.Longest() + mk.KV.Page - 1) / mk.KV.Page
	b.subject = gate.Subject{Kernel: mk, Weights: weights, Table: gate.ShuffledTable(pages), Write: b.gpu.Write, Plant: b.plant,
		Progress: func(what string) { log.Print("judging ", what) }}
	b.subject.Session, err = runtime.NewSession(mk, b.gpu, weights, pages, slices.Clone(b.subject.Table), 0xffff0000)
	return b, err
}

// plant swaps in the cubin with the fault.
func (b *bench) plant(_ context.Context, fault megakernel.Fault) (func(), error) {
	code, err := os.ReadFile(b.cubin(fault))
	if err != nil {
		return nil, err
	}
	return b.gpu.Swap(code)
}

func (b *bench) cubin(fault megakernel.Fault) string {
	name := b.config.Name
	if fault != megakernel.NoFault {
		name += "+" + string(fault)
	}
	return filepath.Join(b.kernels, name+".cubin")
}

func (b *bench) file(facts cuda.Facts, c gate.Case) gate.File {
	o := b.subject.Kernel.Options
	return gate.File{GPU: facts.Name, Driver: cuda.DriverRelease(), CUDA: fmt.Sprintf("%d.%d", facts.Driver/1000, facts.Driver%1000/10), Commit: revision.String(),
		Options: map[string]any{"sms": o.SMs, "page": o.Page, "splits": o.Splits, "stages": o.Stages,
			"stage_bytes": o.StageBytes, "in_flight": o.InFlight, "consumers": o.Consumers, "pages": "shuffled"},
		Cases: []gate.Case{c}}
}

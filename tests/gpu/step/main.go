//go:build cuda

// Command step runs an emitted kernel on a GPU with random weights and prints
// the device time per token; for small models it also compares the logits with
// the float64 reference.
package main

import (
	"flag"
	"fmt"
	"log"
	"math"
	"os"
	"path/filepath"
	"sort"
	"time"

	"github.com/mkgen/mkgen/engine/runtime"
	"github.com/mkgen/mkgen/engine/runtime/cuda"
	"github.com/mkgen/mkgen/megakernel"
	"github.com/mkgen/mkgen/megakernel/reference"
	"github.com/mkgen/mkgen/models"
	"github.com/mkgen/mkgen/models/synth"
	"github.com/mkgen/mkgen/tests/gpu/choice"
)

func main() {
	c := choice.Flags()
	dir := flag.String("kernels", "out/kernels", "what tests/gpu/kernels wrote")
	tokens := flag.Int("tokens", 32, "tokens to feed")
	start := flag.Int("start", 0, "position of the first token")
	launch := flag.Int("launch", 0, "tokens a launch chooses itself; 0: one launch a token, tokens given")
	check := flag.Bool("check", false, "compare with the float64 reference")
	flag.Parse()
	if err := run(c, *dir, *tokens, *start, *launch, *check); err != nil {
		log.Fatal(err)
	}
}

func run(ch *choice.Choice, dir string, tokens, start, launch int, check bool) error {
	mk, err := ch.Build(megakernel.NoFault)
	if err != nil {
		return err
	}
	c, model := mk.Config, ch.Name(megakernel.NoFault)
	code, err := os.ReadFile(filepath.Join(dir, model+".cubin"))
	if err != nil {
		return err
	}
	dev, err := cuda.Open(0)
	if err != nil {
		return err
	}
	defer dev.Close()
	gpu, err := runtime.NewGPU(mk.IR, dev, code)
	if err != nil {
		return err
	}
	defer gpu.Close()
	t0 := time.Now()
	s, err := runtime.NewSequence(mk, gpu, synth.NewWeights(1, c), (start+tokens)/mk.KV.Page+1, nil, 0xffffff00)
	if err != nil {
		return err
	}
	fmt.Printf("%s: loaded in %v\n", model, time.Since(t0))
	if err := s.Skip(start); err != nil {
		return err
	}
	var ref *reference.Model
	if check {
		shape := c
		if ref, err = reference.NewModel(shape, reference.Synthetic(shape, 1), reference.Hooks{}); err != nil {
			return err
		}
	}
	if launch > 0 {
		return generate(s, gpu, model, c, start, tokens, launch)
	}
	ids := synth.Tokens(1, 0, tokens, c.Vocab)
	logits := make([]float32, c.Vocab)
	var times []float64
	for i, id := range ids {
		next, err := s.Step(id)
		if err != nil {
			return err
		}
		times = append(times, gpu.Last.Seconds()*1e6)
		if ref == nil {
			continue
		}
		if err := s.Logits(logits); err != nil {
			return err
		}
		want := ref.Step(id)
		worst := 0.0
		for j := range want {
			worst = max(worst, math.Abs(want[j]-float64(logits[j])))
		}
		fmt.Printf("pos %d: next %d want %d, max abs logit error %.4g\n", i, next, reference.Argmax(want), worst)
	}
	if len(times) == 0 {
		return nil
	}
	sort.Float64s(times)
	fmt.Printf("%s: device µs per token: min %.1f median %.1f max %.1f; %.1f GB/s of weights (UNGATED)\n", model, times[0],
		times[len(times)/2], times[len(times)-1], float64(c.WeightBytes())/times[len(times)/2]/1e3)
	return nil
}

// generate times launches that choose several tokens each, from start on.
func generate(s *runtime.Sequence, gpu *runtime.GPU, model string, c models.Config, start, tokens, launch int) error {
	var times []float64
	next := []int{1}
	for range max(tokens/launch, 2) {
		if err := s.Skip(start); err != nil {
			return err
		}
		chosen, err := s.Generate(next, launch)
		if err != nil {
			return err
		}
		next = chosen[len(chosen)-1:]
		times = append(times, gpu.Last.Seconds()*1e6/float64(launch))
	}
	sort.Float64s(times)
	m := times[len(times)/2]
	bytes := float64(c.WeightBytes()) + float64(c.KVBytesPerToken())*float64(start+launch/2)
	fmt.Printf("%s: %d tokens a launch from %d: device µs per token: min %.1f median %.1f max %.1f; %.1f GB/s of weights and KV (UNGATED)\n",
		model, launch, start, times[0], m, times[len(times)-1], bytes/m/1e3)
	return nil
}

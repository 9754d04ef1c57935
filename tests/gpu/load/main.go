// Command load brings weights to a GPU, from a checkpoint or made there at random,
// and says how fast that was, what it took of the host's and the GPU's memory, and
// whether the packed image is the one that the CPU packs.
//
//	go run ./tests/gpu/kernels -model llama3-8b -random -o out/kernels
//	scripts/build-cuda build -o out/ ./tests/gpu/load
//	out/load -model llama3-8b -write /dev/shm/8b           a checkpoint of random weights, without a GPU
//	out/load -model llama3-8b -checkpoint /dev/shm/8b -random -seed 1
package main

import (
	"flag"
	"log"

	"github.com/mkgen/mkgen/tests/gpu/choice"
)

// flags are what the command line says.
type flags struct {
	*choice.Choice
	kernels, checkpoint, write, dtype string
	seed                              uint64
	random, check                     bool
	workers                           int
	compare                           int64
}

func main() {
	f := flags{Choice: choice.Flags()}
	flag.StringVar(&f.kernels, "kernels", "out/kernels", "what tests/gpu/kernels wrote with -random")
	flag.StringVar(&f.checkpoint, "checkpoint", "", "directory of a checkpoint to load")
	flag.StringVar(&f.write, "write", "", "only write a checkpoint of the random weights of -seed to this directory")
	flag.StringVar(&f.dtype, "dtype", "bf16", "with -write, bf16 or f32")
	flag.Uint64Var(&f.seed, "seed", 1, "of random weights")
	flag.BoolVar(&f.random, "random", false,
		"make random weights on the GPU; beside -checkpoint, afterwards, and they must be the same when that was written with the same seed")
	flag.BoolVar(&f.check, "check", false, "refuse weights that are not finite")
	flag.IntVar(&f.workers, "workers", 0, "goroutines that pack; 0 chooses")
	flag.Int64Var(&f.compare, "compare", 2<<30, "bytes of the packed image to compare at most")
	flag.Parse()
	run := load
	if f.write != "" {
		run = write
	}
	if err := run(&f); err != nil {
		log.Fatal(err)
	}
}

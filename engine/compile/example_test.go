package compile_test

import (
	"context"
	"fmt"
	"log"

	"github.com/mkgen/mkgen/engine/compile"
	"github.com/mkgen/mkgen/megakernel"
	"github.com/mkgen/mkgen/models"
)

// It is compiled, not run: it needs nvcc.
func Example() {
	config, err := models.Lookup("llama3-8b")
	if err != nil {
		log.Fatal(err)
	}
	mk, err := megakernel.Build(config, megakernel.Options{})
	if err != nil {
		log.Fatal(err)
	}
	src, err := compile.SourceOf(mk, "sm_90a")
	if err != nil {
		log.Fatal(err)
	}
	res, err := compile.Kernel(context.Background(), src, compile.Options{})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Printf("%s: %d registers, %d bytes spilled, from the cache: %v\n", res.Function, res.Registers, res.SpillBytes,
		res.Cached)
}

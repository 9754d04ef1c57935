package engine_test

import (
	"context"
	"fmt"

	"github.com/mkgen/mkgen/engine"
	"github.com/mkgen/mkgen/engine/runtime"
	"github.com/mkgen/mkgen/engine/sampling"
	"github.com/mkgen/mkgen/megakernel"
	"github.com/mkgen/mkgen/models"
	"github.com/mkgen/mkgen/models/synth"
)

// Load, generate, stream, close: random weights on the executor, so that it runs
// anywhere. With checkpoint.Open and tokenizer.Open in place of synth's weights
// the requests are text; with runtime.NewGPU in place of NewSim it is fast.
func Example() {
	if err := generate(); err != nil {
		fmt.Println(err)
	}
	// Output:
	// 3 tokens before 5
	// a token, a token, a token, a token, a token, length
	// again the same: true
	// after Close: engine: used after Close
}

func generate() error {
	c, err := models.Lookup("tiny")
	if err != nil {
		return err
	}
	mk, err := megakernel.Build(c, megakernel.Options{SMs: 2})
	if err != nil {
		return err
	}
	device, err := runtime.NewSim(mk.IR, 1)
	if err != nil {
		return err
	}
	weights := synth.NewWeights(1, c)
	e, err := engine.New(context.Background(),
		engine.Options{Kernel: mk, Device: device, Weights: runtime.FromTensors(weights, runtime.LoadOptions{}),
			KVTokens: 64})
	if err != nil {
		return err
	}
	defer e.Close()

	request := engine.Request{Tokens: []int{11, 22, 33}, MaxTokens: 5,
		Sampling: sampling.Params{Temperature: 0.8, TopP: 0.95, Seed: 1}}
	fmt.Println(len(request.Tokens), "tokens before", request.MaxTokens)
	result, err := e.Generate(context.Background(), request, func(p engine.Piece) bool {
		fmt.Print("a token, ") // with a tokenizer: p.Text
		return true
	})
	if err != nil {
		return err
	}
	fmt.Println(result.Finish)

	again, err := e.Generate(context.Background(), request, nil)
	if err != nil {
		return err
	}
	fmt.Println("again the same:", fmt.Sprint(result.Tokens) == fmt.Sprint(again.Tokens))

	if err := e.Close(); err != nil {
		return err
	}
	_, err = e.Generate(context.Background(), request, nil)
	fmt.Println("after Close:", err)
	return nil
}

// Two requests at a time on a ragged kernel, the second one cut short by its reader.
func ExampleEngine_Submit() {
	if err := together(); err != nil {
		fmt.Println(err)
	}
	// Output:
	// the first: 6 tokens, length
	// the second: cancelled
}

func together() error {
	c, err := models.Lookup("tiny")
	if err != nil {
		return err
	}
	mk, err := megakernel.Build(c, megakernel.Options{SMs: 2, Tokens: 4})
	if err != nil {
		return err
	}
	device, err := runtime.NewSim(mk.IR, 1)
	if err != nil {
		return err
	}
	weights := synth.NewWeights(1, c)
	e, err := engine.New(context.Background(),
		engine.Options{Kernel: mk, Device: device, Weights: runtime.FromTensors(weights, runtime.LoadOptions{}),
			KVTokens: 128, TokensPerLaunch: 4})
	if err != nil {
		return err
	}
	defer e.Close()

	first, err := e.Submit(context.Background(), engine.Request{Tokens: []int{11, 22, 33}, MaxTokens: 6})
	if err != nil {
		return err
	}
	second, err := e.Submit(context.Background(), engine.Request{Tokens: []int{11, 22, 44}, MaxTokens: 100})
	if err != nil {
		return err
	}
	second.Next() // its first token is enough
	second.Cancel()
	tokens := 0
	for range first.Pieces() {
		tokens++
	}
	result, err := first.Wait()
	if err != nil {
		return err
	}
	fmt.Printf("the first: %d tokens, %s\n", tokens, result.Finish)
	result, _ = second.Wait() // the error is the context's
	fmt.Printf("the second: %s\n", result.Finish)
	return e.Close()
}

package tokenizer_test

import (
	"fmt"

	"github.com/mkgen/mkgen/models/tokenizer"
)

// A conversation becomes ids, and ids that a model gives become text as they come.
func Example() {
	tok, err := tokenizer.Open("testdata/llama3-like")
	if err != nil {
		fmt.Println(err)
		return
	}
	template, err := tok.ChatTemplate("")
	if err != nil {
		fmt.Println(err)
		return
	}
	prompt, err := template.Render([]tokenizer.Message{{Role: "user", Content: "Hi 😀"}},
		tokenizer.ChatOptions{AddGenerationPrompt: true})
	if err != nil {
		fmt.Println(err)
		return
	}
	ids, err := tok.Encode(prompt, false) // the template has put begin-of-text there
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(len(ids), tok.Decode(ids, false) == prompt)

	answer, err := tok.Encode("A fox 🦊!", false)
	if err != nil {
		fmt.Println(err)
		return
	}
	decoder := tok.NewDecoder(true)
	for _, id := range answer {
		fmt.Printf("%q ", decoder.Add(id))
	}
	fmt.Printf("%q\n", decoder.Flush())
	// Output:
	// 40 true
	// "A" " f" "o" "x" " " "" "🦊" "!" ""
}

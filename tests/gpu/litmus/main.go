// Command litmus runs litmus tests of the memory model on a GPU, many rounds each beside warps that stream memory, and
// says what was seen: where PTX promises that a reader sees the message, and where it does not.
//
//	scripts/build-cuda build -o out/dev/ ./tests/gpu/litmus
//	out/dev/litmus -messages 1e9 -record bench/results/h100/2026-11-26-litmus.json
package main

import (
	"flag"
	"fmt"
	"os"
)

// row is what a test came to.
type row struct {
	Test     string  `json:"test"`
	What     string  `json:"what"`
	Promised string  `json:"promised,omitempty"` // the rule of PTX; none: PTX allows a reader to see something else
	Messages int64   `json:"messages"`
	Wrong    int64   `json:"wrong"` // words that readers saw and that were not the message's
	Seconds  float64 `json:"seconds"`
	LoadGBs  float64 `json:"load_gb_s"` // that other warps read meanwhile
}

// record is what a run leaves under bench/results.
type record struct {
	Date   string `json:"date"`
	GPU    string `json:"gpu"`
	Driver string `json:"driver"`
	Commit string `json:"commit"`
	Tests  []row  `json:"tests"`
}

// failed says whether something was seen that PTX rules out.
func (r *record) failed() error {
	for _, t := range r.Tests {
		if t.Promised != "" && t.Wrong > 0 {
			return fmt.Errorf("%s: %d words were wrong, against %s", t.Test, t.Wrong, t.Promised)
		}
	}
	return nil
}

func main() {
	messages := flag.Float64("messages", 1e8, "messages a test")
	path := flag.String("record", "", "file to write the record to")
	flag.Parse()
	if err := run(*messages, *path); err != nil {
		fmt.Fprintln(os.Stderr, "litmus:", err)
		os.Exit(1)
	}
}

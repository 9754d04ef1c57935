package bench

import (
	"fmt"
	"io"
	"strings"

	"github.com/mkgen/mkgen/internal/jsonfile"
)

// AttentionFile is what mkgen bench --prefill-attention --cases writes, for bench/attention.py.
type AttentionFile struct {
	AttentionHeader
	Attention string          `json:"attention,omitempty"` // attend.PrefillVariant
	Page      int             `json:"page"`
	Cases     []AttentionCase `json:"cases"`
}

// AttentionHeader is what files of the attention of prompts have in common.
type AttentionHeader struct {
	What      string `json:"what"` // AttentionWhat or AttentionBesideWhat
	GPU       string `json:"gpu"`
	Driver    string `json:"driver"`
	CUDA      string `json:"cuda"`
	Commit    string `json:"commit"`
	Compiler  string `json:"compiler"`
	Heads     int    `json:"heads"`
	KVHeads   int    `json:"kv_heads"`
	HeadDim   int    `json:"head_dim"`
	Sequences int    `json:"sequences"`
}

// AttentionWhat is the field what of an AttentionFile.
const AttentionWhat = "attention of prompts"

// AttentionCase are the figures of one length. TFLOP/s count two products over what a token sees. Worst is the
// largest error of a row of the sample, see MaxAttentionError.
type AttentionCase struct {
	Tokens int               `json:"tokens"`
	Micros float64           `json:"device_us"` // the median
	FLOP   float64           `json:"flop"`
	TFLOPS float64           `json:"tflop_s"`
	Worst  float64           `json:"worst"`
	Sample []AttentionSample `json:"sample"`
	Rounds []float64         `json:"rounds_us"`
}

// AttentionSample is a head's output of one token.
type AttentionSample struct {
	Sequence int       `json:"sequence"`
	Token    int       `json:"token"`
	Head     int       `json:"head"`
	Out      []float32 `json:"out"`
}

// CheckAttentionFile refuses data that are no AttentionFile.
func CheckAttentionFile(data []byte) error {
	return jsonfile.Parse(data, &AttentionFile{}, jsonfile.Kind{Name: "a file of attention of prompts",
		What: AttentionWhat})
}

// Write writes the file, whole or not at all.
func (f *AttentionFile) Write(path string) error { return jsonfile.Write(path, f) }

// WriteTable writes the figures as a table.
func (f *AttentionFile) WriteTable(w io.Writer, facts Facts) error {
	note := ""
	if facts.Executor {
		note = " (of the executor: no measure of a GPU)"
	}
	_, err := fmt.Fprintf(w,
		"%s attention of %d prompts, %d query and %d KV heads of %d, "+
			"shuffled pages of %d tokens%s\n\ntokens     device  TFLOP/s  error\n",
		strings.TrimSpace("Causal "+f.Attention), f.Sequences, f.Heads, f.KVHeads, f.HeadDim, f.Page, note)
	for _, c := range f.Cases {
		if err == nil {
			_, err = fmt.Fprintf(w, "%6d  %6.2f ms  %7.1f  %.2g\n", c.Tokens, c.Micros/1e3, c.TFLOPS, c.Worst)
		}
	}
	return err
}

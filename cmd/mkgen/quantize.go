package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/mkgen/mkgen/internal/atomicfile"
	"github.com/mkgen/mkgen/internal/plural"
	"github.com/mkgen/mkgen/internal/progress"
	"github.com/mkgen/mkgen/internal/table"
	"github.com/mkgen/mkgen/lab/perplexity"
	"github.com/mkgen/mkgen/megakernel"
	"github.com/mkgen/mkgen/models"
	"github.com/mkgen/mkgen/models/quantise"
	"github.com/mkgen/mkgen/models/tokenizer"
	"github.com/spf13/cobra"
)

// quantizeFlags are what mkgen quantize is told.
type quantizeFlags struct {
	checkpoint, out, format, report, text string
	head                                  bool
	ignore                                []string // fields of config.json
}

// reading is how config.json files are read.
func (q *quantizeFlags) reading() models.Reading { return models.Reading{Ignore: q.ignore} }

func newQuantize() *cobra.Command {
	var q quantizeFlags
	var names []string
	for _, f := range quantise.Formats() {
		names = append(names, f.Name)
	}
	cmd := &cobra.Command{
		Use:   "quantize",
		Short: "Write a checkpoint with weights of 4 or 8 bits",
		Long: `quantize rounds the matrices of a checkpoint's layers to 4 or 8 bits and writes
a checkpoint that compressed-tensors (so transformers and vLLM) and mkgen read:

  i4g128, i4g64, i4g32   4-bit integers, a scale for that many columns of a row
  i8                     8-bit integers, a scale for a row
  e4m3                   float8, a scale for a row, a power of two

Scales of integers are those of the least squared error of the weights. Nothing
is calibrated on text. Norms, biases and the embedding stay as they are, as does
the LM head without --head; files beside the weights are copied. The directory
appears whole or not at all.

The table has the errors of the worst tensors: the squared error over the
squares of the weights, the same in decibels, and the largest difference beside
the weights' root mean square. --text adds the perplexity of the text before
and after, computed in float64 on the CPU: for small models.`,
		Example: `  mkgen quantize --checkpoint path/to/Llama-3.2-1B --format i4g128 --out out/1b-i4
  mkgen quantize --checkpoint models/bundled/tiny --format i4g32 --out out/tiny-i4 \
    --text tales.txt --report out/tiny-i4.json`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return q.run(cmd) },
	}
	f := cmd.Flags()
	f.SortFlags = false
	f.StringVar(&q.checkpoint, "checkpoint", "", "Hugging Face checkpoint `directory` in bf16, f16 or f32")
	f.StringVar(&q.format, "format", "", "`format` to round to: "+strings.Join(names, ", "))
	f.StringVar(&q.out, "out", "", "`directory` to write, new or empty")
	f.BoolVar(&q.head, "head", false, "round the LM head, too")
	ignoreField(f, &q.ignore)
	f.StringVar(&q.report, "report", "", "JSON `file` for the errors of all tensors, and the perplexities")
	f.StringVar(&q.text, "text", "", "`file` of text whose perplexity is computed before and after")
	return cmd
}

// quantizeReport is the file of --report.
type quantizeReport struct {
	*quantise.Report
	Perplexity *perplexities `json:"perplexity,omitempty"`
}

// perplexities are those of a text before and after.
type perplexities struct {
	Computed string            `json:"computed"` // by what
	Window   int               `json:"window"`   // tokens of a sequence at most
	Bytes    int               `json:"bytes"`    // of text
	Before   perplexity.Result `json:"before"`
	After    perplexity.Result `json:"after"`
}

// computedBy says what perplexities are computed by.
const computedBy = "the float64 reference on the CPU, weights rounded to bf16"

func (q *quantizeFlags) run(cmd *cobra.Command) error {
	for _, required := range []struct{ flag, value string }{
		{"checkpoint", q.checkpoint}, {"format", q.format}, {"out", q.out},
	} {
		if required.value == "" {
			return usagef("--%s is missing: mkgen quantize --checkpoint DIR --format FORMAT --out DIR", required.flag)
		}
	}
	format, err := quantise.Parse(q.format)
	if err != nil {
		return usagef("--format: %w", err)
	}
	if err := checkOutputs(cmd, []string{q.text}, output{flag: "report", path: q.report, ext: ".json"}); err != nil {
		return err
	}
	if err := atomicfile.CheckDir(q.out); err != nil {
		return fmt.Errorf("--out: %w", err)
	}
	ctx, stop := interruptible(cmd.Context())
	defer stop()
	var before *measured
	if q.text != "" {
		if before, err = q.measure(ctx, cmd, "perplexity before", q.checkpoint); err != nil {
			return interrupted(ctx, err)
		}
	}
	bar := progress.Start(cmd.ErrOrStderr(), "quantizing")
	last := int64(-1)
	report, err := quantise.Checkpoint(ctx, q.checkpoint, q.out,
		quantise.Options{Format: format, Head: q.head, Digests: q.report != "", Reading: q.reading(),
			Progress: func(done, total int64) { last = done; bar.Set(done, total) }})
	if err != nil {
		bar.End(-1)
		return interrupted(ctx, err)
	}
	bar.End(last)
	report.Sort()
	for _, c := range report.Lost() {
		fmt.Fprintf(cmd.ErrOrStderr(), "mkgen: %s: found a squared error of %.3g, want less than 0.5: little of it is left\n",
			c.Tensor, c.Relative)
	}
	if err := q.print(cmd, report); err != nil {
		return err
	}
	file := quantizeReport{Report: report}
	if before != nil {
		after, err := q.measure(ctx, cmd, "perplexity after", q.out)
		if err != nil {
			return interrupted(ctx, err)
		}
		file.Perplexity = &perplexities{Computed: computedBy, Window: before.window, Bytes: before.bytes,
			Before: before.Result, After: after.Result}
		file.Perplexity.print(cmd.OutOrStdout())
	}
	if q.report == "" {
		return nil
	}
	text, err := json.MarshalIndent(file, "", "  ")
	if err != nil {
		return err
	}
	return atomicfile.Write(q.report, append(text, '\n'))
}

// measured is the result of one model, and what it is of.
type measured struct {
	perplexity.Result
	window, bytes int
}

// measure computes the perplexity of the text by a checkpoint's weights.
func (q *quantizeFlags) measure(ctx context.Context, cmd *cobra.Command, what, dir string) (_ *measured, err error) {
	text, err := os.ReadFile(q.text)
	if err != nil {
		return nil, fmt.Errorf("--text: %w", err)
	}
	c, _, err := openModel(dir, q.reading())
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, c.Close()) }()
	tok, err := tokenizer.Open(dir)
	if err != nil {
		return nil, fmt.Errorf("--text: %w", err)
	}
	config := c.Config()
	windows, err := perplexity.Cut(config, tok, string(text))
	if err != nil {
		return nil, fmt.Errorf("--text %s: %w", q.text, err)
	}
	m := measured{window: perplexity.Length(config), bytes: len(text)}
	bar := progress.Start(cmd.ErrOrStderr(), what)
	m.Result, err = perplexity.Measure(ctx, config, c, windows,
		func(done, total int) { bar.Set(int64(done), int64(total)) })
	bar.End(-1)
	if err != nil {
		return nil, fmt.Errorf("--text %s: %w", q.text, err)
	}
	return &m, nil
}

// shownTensors is how many of the worst tensors the table has.
const shownTensors = 12

// print writes the table and what else there is to say of the errors.
func (q *quantizeFlags) print(cmd *cobra.Command, r *quantise.Report) error {
	w := cmd.OutOrStdout()
	t := table.New("TENSOR", ">ROWS", ">COLUMNS", ">SQUARED ERROR", ">DB", ">LARGEST", ">RMS WEIGHT")
	for _, c := range r.Tensors[:min(shownTensors, len(r.Tensors))] {
		t.Row(c.Tensor, c.Rows, c.Columns, fmt.Sprintf("%.3g", c.Relative), fmt.Sprintf("%.1f", c.Decibels),
			fmt.Sprintf("%.3g", c.Largest), fmt.Sprintf("%.3g", c.RootSquare))
	}
	if more := len(r.Tensors) - shownTensors; more > 0 {
		t.Line(fmt.Sprintf("and %d with less", more))
	}
	if err := t.Write(w, ""); err != nil {
		return err
	}
	fmt.Fprintf(w, "\n%s: %s of %s, %s; as it was: %s\n", q.out, megakernel.FormatBytes(r.Bytes), r.Format,
		plural.Of(len(r.Tensors), "matrix"), strings.Join(append([]string{"embeddings"}, r.Ignored...), ", "))
	if len(r.LeftOut) > 0 {
		fmt.Fprintf(w, "left out, weights of other formats: %s\n", strings.Join(r.LeftOut, ", "))
	}
	return nil
}

func (p *perplexities) print(w io.Writer) {
	fmt.Fprintf(w, "perplexity of %d tokens: %.4f before, %.4f after (%.4f and %.4f bits a byte), by %s\n",
		p.Before.Tokens, p.Before.Perplexity(), p.After.Perplexity(), p.bitsPerByte(p.Before), p.bitsPerByte(p.After),
		p.Computed)
}

// bitsPerByte is a cross entropy, spread over the text.
func (p *perplexities) bitsPerByte(r perplexity.Result) float64 {
	const ln2 = 0.6931471805599453
	return r.Nats / ln2 / float64(p.Bytes)
}

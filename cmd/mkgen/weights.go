package main

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"

	"github.com/mkgen/mkgen/engine/runtime"
	"github.com/mkgen/mkgen/internal/nvcc"
	"github.com/mkgen/mkgen/megakernel"
	"github.com/mkgen/mkgen/models"
	"github.com/mkgen/mkgen/models/bundled"
	"github.com/mkgen/mkgen/models/checkpoint"
	"github.com/mkgen/mkgen/models/quant"
	"github.com/mkgen/mkgen/models/synth"
	"github.com/mkgen/mkgen/models/tokenizer"
	"github.com/mkgen/mkgen/pipeline"
	"github.com/spf13/cobra"
)

// weights says where a model's weights come from.
type weights struct {
	checkpoint string
	random     seed
	tokenizer  string // directory, with random
	check      bool
	image      bool
}

func (w *weights) flags(cmd *cobra.Command) {
	f := cmd.Flags()
	f.StringVar(&w.checkpoint, "checkpoint", "",
		"Hugging Face checkpoint `directory`: config.json, safetensors, tokenizer.json")
	f.Var(&w.random, "random", "random weights of this seed instead")
	f.Lookup("random").DefValue = ""
	f.StringVar(&w.tokenizer, "tokenizer", "", "`directory` of a tokenizer.json for --random, whose text is token ids else")
	f.BoolVar(&w.check, "check", true, "refuse weights that are not finite, by name")
	f.BoolVar(&w.image, "image-cache", false,
		"keep the packed weights of --checkpoint on disk, beside the cubins, and take them from there the next time")
}

// found is a model with its weights.
type found struct {
	config  models.Config
	tensors megakernel.Tensors
	random  bool                 // tensors are those of --random
	note    string               // what a user is told of them; empty: nothing
	text    *tokenizer.Tokenizer // nil when there is none
	close   func() error         // nil when there is nothing to close

	quantised bool           // tensors are widened
	image     *runtime.Image // of --image-cache; nil: none
}

// noteFor is what a user is told of the weights in a kernel of a format.
func (f *found) noteFor(format pipeline.Format) string {
	if _, coded := f.tensors.(*quant.Coded); f.quantised && !coded && format != "" && format != pipeline.FormatBF16 {
		return f.note + " --weight-format " + string(format) +
			" rounds them once more: without it they are as they were quantised."
	}
	return f.note
}

// Close lets the weights go.
func (f *found) Close() error {
	if f.close == nil {
		return nil
	}
	return f.close()
}

// find finds the model that the flags ask for, and its weights. Where a checkpoint has codes that a kernel can multiply
// as they are, its format is the kernel's unless another is asked for.
func (w *weights) find(cmd *cobra.Command, c *choice) (*found, error) {
	f, err := w.findModel(cmd, c)
	if err != nil {
		return nil, err
	}
	if f.tensors, f.note, err = c.withCodes(cmd, f.tensors, f.note); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

// findModel is find with weights as they are read.
func (w *weights) findModel(cmd *cobra.Command, c *choice) (*found, error) {
	given := cmd.Flags().Changed
	if w.image && !given("checkpoint") {
		return nil, usagef("--image-cache goes with --checkpoint")
	}
	if given("checkpoint") && given("random") {
		return nil, usagef("--checkpoint and --random exclude each other")
	}
	if given("tokenizer") && !given("random") {
		return nil, usagef("--tokenizer goes with --random: other weights come with theirs")
	}
	if given("checkpoint") && given("config") {
		return nil, usagef("--checkpoint and --config exclude each other: a checkpoint has its own config.json")
	}
	if given("checkpoint") && !given("model") {
		if err := c.begin(cmd); err != nil {
			return nil, err
		}
		f, err := w.open(w.checkpoint, c.reading())
		if err != nil {
			return nil, err
		}
		if err := c.profiled(cmd, f.config); err != nil {
			return nil, errors.Join(err, f.Close())
		}
		return f, nil
	}
	config, err := c.load(cmd)
	switch {
	case err != nil:
		return nil, err
	case given("random"):
		return w.made(config)
	case given("checkpoint"):
		f, err := w.open(w.checkpoint, c.reading())
		if err != nil {
			return nil, err
		}
		if err := sameModel(config, f.config); err != nil {
			return nil, errors.Join(fmt.Errorf("--checkpoint %s is not --model %s: %w", w.checkpoint, config.Name, err),
				f.Close())
		}
		f.config.Name = config.Name
		return f, nil
	}
	if f, ok, err := bundledModel(config.Name); ok && given("model") {
		return f, err
	}
	return nil, usagef("mkgen has no weights of %s; give --checkpoint DIR or --random SEED", config.Name)
}

// made are random weights, with the tokenizer that is asked for. Tokens of it that the model has not are an error;
// a model may have more.
func (w *weights) made(config models.Config) (*found, error) {
	f := &found{config: config, tensors: synth.NewWeights(uint64(w.random), config), random: true}
	if w.tokenizer == "" {
		return f, nil
	}
	text, err := tokenizer.Open(w.tokenizer)
	if err != nil {
		return nil, fmt.Errorf("--tokenizer: %w", err)
	}
	if n := text.Size(); n > config.Vocab {
		return nil, usagef("--tokenizer: found %d tokens in %s, want at most the %d of %s", n, w.tokenizer, config.Vocab,
			config.Name)
	}
	f.text = text
	return f, nil
}

// model is an open checkpoint, quantised or not.
type model interface {
	megakernel.Tensors
	Config() models.Config
	Close() error
}

// openModel opens a checkpoint directory; note is what a user is told of it.
func openModel(dir string, how models.Reading) (c model, note string, err error) {
	if hint := models.Elsewhere(dir); hint != "" {
		return nil, "", usagef("--checkpoint %s", hint)
	}
	if !quant.Quantised(dir) {
		c, err := checkpoint.OpenWith(dir, how)
		if err != nil {
			return nil, "", cmp.Or(quant.Unstated(dir), err)
		}
		return c, rounding(c), nil
	}
	q, err := quant.OpenModel(dir, how)
	if err != nil {
		return nil, "", err
	}
	return q, noteOf(q), nil
}

// noteOf says what a quantised model is, and what is not done of it.
func noteOf(q *quant.Model) string {
	note := "The checkpoint is " + q.Summary() + "; " + widened
	if left := q.LeftOut(); len(left) > 0 {
		note += " It asks for " + strings.Join(left, " and ") + " too: left out."
	}
	return note
}

// open opens a checkpoint directory; its tokenizer may be missing.
func (w *weights) open(dir string, how models.Reading) (*found, error) {
	c, note, err := openModel(dir, how)
	if err != nil {
		return nil, err
	}
	text, err := tokenizer.Open(dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, errors.Join(err, c.Close())
	}
	_, quantised := c.(*quant.Model)
	f := &found{config: c.Config(), tensors: c, text: text, note: note, quantised: quantised, close: c.Close}
	if w.image {
		if f.image, err = imageOf(dir); err != nil {
			return nil, errors.Join(err, c.Close())
		}
	}
	return f, nil
}

// imagesLeave is runtime.Image.Free; tests, whose images are small, set it, as a disk may be fuller than the default.
var imagesLeave int64

// imageOf is where the packed weights of a checkpoint are kept.
func imageOf(dir string) (*runtime.Image, error) {
	cache, err := nvcc.CacheDir()
	if err != nil {
		return nil, fmt.Errorf("--image-cache: %w", err)
	}
	source, err := checkpoint.Fingerprint(dir)
	if err != nil {
		return nil, fmt.Errorf("--image-cache: %w", err)
	}
	return &runtime.Image{Dir: filepath.Join(cache, "images"), Source: source, Free: imagesLeave}, nil
}

// rounding says in a line that weights of a checkpoint lose digits on the way to the device; "" where
// they do not. The tensors say so, whatever config.json does.
func rounding(c *checkpoint.Checkpoint) string {
	all := c.DTypes()
	var names []string
	for _, t := range all {
		if t == models.F16 || t == models.F32 {
			names = append(names, t.String())
		}
	}
	some := "The checkpoint's"
	switch {
	case len(names) == 0:
		return ""
	case len(names) < len(all):
		some = "Some of the checkpoint's"
	}
	return some + " weights are " + strings.Join(names, " and ") + "; they are rounded to bfloat16."
}

// sameModel names a field in which a checkpoint is another model than the one
// asked for, if there is one. Names and special tokens may differ.
func sameModel(want, have models.Config) error {
	if field, own, others := have.Differs(want); field != "" {
		return fmt.Errorf("%s is %s, want %s", field, own, others)
	}
	return nil
}

// bundledModel is a model whose weights are part of the program; false when they
// are not.
func bundledModel(name string) (*found, bool, error) {
	files, ok := bundled.Files(name)
	if !ok {
		return nil, false, nil
	}
	var c model
	var note string
	var err error
	if bundled.Quantised(name) {
		var q *quant.Model
		if q, err = quant.OpenModelFS(files); err == nil {
			c, note = q, noteOf(q)
		}
	} else {
		c, _, err = bundled.Checkpoint(name)
	}
	if err != nil {
		return nil, true, err
	}
	text, _, err := bundled.Tokenizer(name)
	if err != nil {
		return nil, true, errors.Join(err, c.Close())
	}
	config := c.Config()
	config.Name = name
	return &found{config: config, tensors: c, text: text, note: note, quantised: bundled.Quantised(name), close: c.Close},
		true, nil
}

// lookupModel finds a configuration by the name of a registered or a bundled model.
func lookupModel(name string) (models.Config, error) {
	files, ok := bundled.Files(name)
	if !ok || slices.Contains(models.Names(), name) {
		return models.Lookup(name)
	}
	text, err := fs.ReadFile(files, checkpoint.ConfigFile)
	if err != nil {
		return models.Config{}, err
	}
	config, _, err := models.ParseQuantised(bytes.NewReader(text))
	config.Name = name
	return config, err
}

// configOfCheckpoint makes a checkpoint's configuration the model's, where no flag names
// a model.
func configOfCheckpoint(cmd *cobra.Command, checkpoint string) error {
	if given := cmd.Flags().Changed; !given("checkpoint") || given("model") || given("config") {
		return nil
	}
	if hint := models.Elsewhere(checkpoint); hint != "" {
		return usagef("--checkpoint %s", hint)
	}
	return cmd.Flags().Set("config", filepath.Join(checkpoint, "config.json"))
}

// Package bundled holds models that are part of the program, so that a first run needs neither a download nor a GPU.
//
// They are `tiny`, the registered configuration of that name with weights trained on fairy tales that are in the public
// domain, and with its own tokenizer; `small`, which computes the same in wider matrices; and the two in 4 and 8 bits,
// as mkgen quantize writes them. tiny/README.md says what it was trained on, how, and under which licence it may be
// used; train/ holds the programs that made them.
package bundled

import (
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"strings"

	"github.com/mkgen/mkgen/models/checkpoint"
	"github.com/mkgen/mkgen/models/tokenizer"
)

//go:embed small small-i4g128 tiny tiny-i4g32 tiny-i8
var files embed.FS

// Names returns the names of the bundled models, sorted.
func Names() []string { return []string{"small", "small-i4g128", "tiny", "tiny-i4g32", "tiny-i8"} }

// Quantised reports whether the bundled model of this name is another one in a format of fewer bits, such as "tiny-i8":
// models/quant opens its Files, Checkpoint does not.
func Quantised(name string) bool { return strings.Contains(name, "-") }

// layered has the files of a quantised model, and beside those all files of the model that it was made from.
type layered struct{ own, from fs.FS }

func (l layered) Open(name string) (fs.File, error) {
	f, err := l.own.Open(name)
	if errors.Is(err, fs.ErrNotExist) {
		return l.from.Open(name)
	}
	return f, err
}

// Files returns the files of the bundled model of this name as in a Hugging Face checkpoint directory: config.json,
// model.safetensors, generation_config.json, tokenizer.json, tokenizer_config.json, and README.md about them. ok is
// false when no model of this name is bundled.
func Files(name string) (fsys fs.FS, ok bool) {
	for _, n := range Names() {
		if n == name {
			fsys, err := fs.Sub(files, name)
			if err != nil {
				panic(fmt.Sprintf("BUG: bundled %s: %v", name, err))
			}
			if base, _, quantised := strings.Cut(name, "-"); quantised {
				from, _ := Files(base)
				return layered{fsys, from}, true
			}
			return fsys, true
		}
	}
	return nil, false
}

// Checkpoint opens the weights of the bundled model of this name, which is not Quantised, with the checks of
// checkpoint.Open; the caller should Close it. ok is false, and the rest nil, when no model of this name is bundled. An
// error means a broken build of this program.
func Checkpoint(name string) (c *checkpoint.Checkpoint, ok bool, err error) {
	fsys, ok := Files(name)
	if !ok {
		return nil, false, nil
	}
	if c, err = checkpoint.OpenFS(fsys); err != nil {
		return nil, true, fmt.Errorf("bundled %s: %w", name, err)
	}
	return c, true, nil
}

// Tokenizer reads the tokenizer of the bundled model of this name. ok is false, and the rest nil, when no model of this
// name is bundled. An error means a broken build of this program.
func Tokenizer(name string) (t *tokenizer.Tokenizer, ok bool, err error) {
	fsys, ok := Files(name)
	if !ok {
		return nil, false, nil
	}
	if t, err = tokenizer.OpenFS(fsys); err != nil {
		return nil, true, fmt.Errorf("bundled %s: %w", name, err)
	}
	return t, true, nil
}

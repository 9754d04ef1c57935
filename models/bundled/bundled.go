// Package bundled holds models that are part of the program, so that a first run needs neither a download nor a GPU.
//
// The one there is today is `tiny`: the registered configuration of that name with weights trained on fairy tales that are in the public
// domain, and with its own tokenizer. tiny/README.md says what it was trained on, how, and under which licence it may be used;
// train/ holds the programs that made it.
package bundled

import (
	"embed"
	"fmt"
	"io/fs"

	"github.com/mkgen/mkgen/models/checkpoint"
	"github.com/mkgen/mkgen/models/tokenizer"
)

//go:embed tiny
var files embed.FS

// Names returns the names of the bundled models, sorted. Each is registered too (models.Lookup), with the configuration of the
// bundled checkpoint.
func Names() []string { return []string{"tiny"} }

// Files returns the files of the bundled model of this name as in a Hugging Face checkpoint directory: config.json, model.safetensors,
// generation_config.json, tokenizer.json, tokenizer_config.json, and README.md and train.json about them. ok is false when no
// model of this name is bundled.
func Files(name string) (fsys fs.FS, ok bool) {
	for _, n := range Names() {
		if n == name {
			fsys, err := fs.Sub(files, name)
			if err != nil {
				panic(fmt.Sprintf("BUG: bundled %s: %v", name, err))
			}
			return fsys, true
		}
	}
	return nil, false
}

// Checkpoint opens the weights of the bundled model of this name, with the checks of checkpoint.Open; the caller should Close it. ok is
// false, and the rest nil, when no model of this name is bundled. An error means a broken build of this program.
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

// Tokenizer reads the tokenizer of the bundled model of this name. ok is false, and the rest nil, when no model of this name is bundled. An
// error means a broken build of this program.
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

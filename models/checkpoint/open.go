package checkpoint

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/mkgen/mkgen/models"
)

// Open opens the checkpoint in directory dir: config.json, and model.safetensors
// or else model.safetensors.index.json with its shards, in transformers' order of
// preference. The caller must Close it.
//
// Everything that the headers can show is refused here, by name and with what was
// found and what is wanted: a corrupt header or index, data that is truncated or
// unclaimed or overlaps, a shard that is missing, a tensor in two shards or in
// another than the index says, and a tensor that is missing, misshapen, of another
// type than BF16, F16 and F32, or not called for. Only rotary_emb.inv_freq may be
// there unread. With tied embeddings lm_head.weight may be absent, or equal to the
// embedding, which is the one reading of data that Open does.
func Open(dir string) (*Checkpoint, error) { return OpenWith(dir, models.Reading{}) }

// OpenWith is Open with another reading of config.json.
func OpenWith(dir string, how models.Reading) (*Checkpoint, error) {
	return openAt(place{dir: dir, how: how}, "checkpoint "+dir)
}

// OpenFS opens the checkpoint at the root of fsys as Open does, with the same
// checks, but reads the weights into memory: it is for small ones, such as those
// that are embedded in a program. fsys is not used after OpenFS returned.
func OpenFS(fsys fs.FS) (*Checkpoint, error) { return openAt(place{fsys: fsys}, "checkpoint") }

// openAt opens the checkpoint at a place; errors about more than config.json
// begin with what.
func openAt(p place, what string) (*Checkpoint, error) {
	config, err := p.config()
	if err != nil {
		return nil, err
	}
	c := &Checkpoint{config: config, tensors: map[string]*tensor{}}
	if c.ends, err = p.endTokens(config); err == nil {
		err = c.load(p)
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", what, errors.Join(err, c.Close()))
	}
	return c, nil
}

func (c *Checkpoint) load(p place) error {
	lines, names, err := p.files()
	if err != nil {
		return err
	}
	if err := c.openFiles(p, names); err != nil {
		return err
	}
	found, inOrder, err := c.parseFiles()
	if err != nil {
		return err
	}
	if err := c.match(lines, found, inOrder); err != nil {
		return err
	}
	return c.tie(found)
}

// files returns the safetensors files and, where there is one, their index.
func (p place) files() ([]indexed, []string, error) {
	_, err := p.stat(SingleFile)
	if !errors.Is(err, fs.ErrNotExist) {
		return nil, []string{SingleFile}, err
	}
	text, err := p.text(IndexFile)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil, p.nothing()
	} else if err != nil {
		return nil, nil, err
	}
	lines, err := parseIndex(text)
	return lines, shards(lines), err
}

// nothing describes a place without weights, with advice for other formats.
func (p place) nothing() error {
	if _, err := os.Stat(p.dir); p.fsys == nil && err != nil {
		return &Problem{Found: "no such directory", Want: "one with " + ConfigFile + " and safetensors files"}
	}
	for _, name := range []string{SingleFile, IndexFile} {
		if p.fsys != nil {
			break
		} else if _, err := os.Lstat(filepath.Join(p.dir, name)); err == nil {
			return &Problem{File: name, Found: "a symbolic link to nothing", Want: "a file", Why: "is the download complete?"}
		}
	}
	problem := &Problem{Found: "neither " + SingleFile + " nor " + IndexFile, Want: "one of them"}
	for _, name := range []string{"pytorch_model.bin", "pytorch_model.bin.index.json", "consolidated.safetensors",
		"original"} {
		if _, err := p.stat(name); err == nil {
			problem.Why = fmt.Sprintf("there is %s: load it with transformers and save it with save_pretrained", name)
		}
	}
	return problem
}

// openFiles opens the named files, or none when one of them is missing.
func (c *Checkpoint) openFiles(at place, names []string) error {
	var p problems
	for _, name := range names {
		f, err := at.weights(name)
		if errors.Is(err, fs.ErrNotExist) {
			p.add(Problem{File: name, Found: "no such file", Want: "the shard that " + IndexFile + " names"})
			continue
		} else if err != nil {
			return err
		}
		c.files = append(c.files, f)
	}
	return p.Err()
}

// parseFiles reads all headers. It returns the tensors by name and their names in
// the order of the files.
func (c *Checkpoint) parseFiles() (map[string]*tensor, []string, error) {
	var p problems
	var errs []error
	var inOrder []string
	found := map[string]*tensor{}
	for _, f := range c.files {
		var entries []entry
		var data int64
		err := f.guard("", func() (err error) {
			entries, data, err = parseHeader(f.name, f.data)
			return err
		})
		errs = append(errs, err)
		for _, e := range entries {
			if first := found[e.name]; first != nil {
				p.add(Problem{File: f.name, Tensor: e.name, Found: "it in " + first.file.name + " too", Want: "it in one shard"})
				continue
			}
			from, _ := dtypeOf(e.dtype)
			if from == models.F16 && c.f16 == nil {
				c.f16 = newF16Table()
			}
			found[e.name] = &tensor{entry: e, file: f, from: from, start: data + e.begin}
			inOrder = append(inOrder, e.name)
		}
	}
	return found, inOrder, errors.Join(append(errs, p.Err())...)
}

// tie makes lm_head.weight another name of the embedding. If the files hold it as
// well, it must be equal.
func (c *Checkpoint) tie(found map[string]*tensor) error {
	if !c.config.TieEmbeddings {
		return nil
	}
	embedName, headName := c.config.TensorName(models.RoleEmbed), c.config.TensorName(models.RoleHead)
	if head := found[headName]; head != nil {
		if err := c.equal(context.Background(), head, c.tensors[embedName]); err != nil {
			return err
		}
	}
	c.tensors[headName] = c.tensors[embedName]
	return nil
}

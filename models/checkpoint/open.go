package checkpoint

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/edsrzf/mmap-go"
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
func Open(dir string) (*Checkpoint, error) {
	config, err := models.ParseFile(filepath.Join(dir, ConfigFile))
	if err != nil {
		return nil, err
	}
	c := &Checkpoint{config: config, tensors: map[string]*tensor{}}
	if err := c.load(dir); err != nil {
		return nil, fmt.Errorf("checkpoint %s: %w", dir, errors.Join(err, c.Close()))
	}
	return c, nil
}

func (c *Checkpoint) load(dir string) error {
	lines, names, err := filesOf(dir)
	if err != nil {
		return err
	}
	if err := c.mapFiles(dir, names); err != nil {
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

// filesOf returns the safetensors files of dir and, where it has one, its index.
func filesOf(dir string) ([]indexed, []string, error) {
	_, err := os.Stat(filepath.Join(dir, SingleFile))
	if !errors.Is(err, fs.ErrNotExist) {
		return nil, []string{SingleFile}, err
	}
	f, err := os.Open(filepath.Join(dir, IndexFile))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil, nothing(dir)
	} else if err != nil {
		return nil, nil, err
	}
	text, err := io.ReadAll(io.LimitReader(f, MaxHeaderBytes+1))
	if err = errors.Join(err, f.Close()); err != nil {
		return nil, nil, err
	}
	if len(text) > MaxHeaderBytes {
		return nil, nil, &Problem{File: IndexFile, Found: "more than " + bytesOf(MaxHeaderBytes), Want: "at most that many"}
	}
	lines, err := parseIndex(text)
	return lines, shards(lines), err
}

// nothing describes a directory without weights, with advice for other formats.
func nothing(dir string) error {
	p := &Problem{Found: "neither " + SingleFile + " nor " + IndexFile, Want: "one of them"}
	for _, name := range []string{"pytorch_model.bin", "pytorch_model.bin.index.json", "consolidated.safetensors", "original"} {
		if _, err := os.Stat(filepath.Join(dir, name)); err == nil {
			p.Why = fmt.Sprintf("there is %s: load it with transformers and save it with save_pretrained", name)
		}
	}
	return p
}

// mapFiles maps the named files, or none when one of them is missing.
func (c *Checkpoint) mapFiles(dir string, names []string) error {
	var p problems
	for _, name := range names {
		f, err := mapFile(name, filepath.Join(dir, name))
		if errors.Is(err, fs.ErrNotExist) {
			p.add(Problem{File: name, Found: "no such file", Want: "the shard that " + IndexFile + " names"})
			continue
		} else if err != nil {
			return err
		}
		c.files = append(c.files, f)
	}
	return p.err()
}

func mapFile(name, path string) (f *file, err error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, &Problem{File: name, Found: "a file of mode " + info.Mode().String(), Want: "a regular file"}
	}
	opened, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, opened.Close()) }()
	if info, err = opened.Stat(); err != nil {
		return nil, err
	}
	if info.Size() < prefixBytes || int64(int(info.Size())) != info.Size() {
		return nil, &Problem{File: name, Found: bytesOf(info.Size()), Want: "a safetensors file of 8 bytes or more, which fits the address space"}
	}
	data, err := mmap.MapRegion(opened, int(info.Size()), mmap.RDONLY, 0, 0)
	if err != nil {
		return nil, fmt.Errorf("%s: mapping %s: %w", name, bytesOf(info.Size()), err)
	}
	return &file{name: name, path: path, data: data}, nil
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
	return found, inOrder, errors.Join(append(errs, p.err())...)
}

// tie makes lm_head.weight another name of the embedding. If the files hold it as
// well, it must be equal.
func (c *Checkpoint) tie(found map[string]*tensor) error {
	if !c.config.TieEmbeddings {
		return nil
	}
	if head := found[headName]; head != nil {
		if err := c.equal(context.Background(), head, c.tensors[embedName]); err != nil {
			return err
		}
	}
	c.tensors[headName] = c.tensors[embedName]
	return nil
}

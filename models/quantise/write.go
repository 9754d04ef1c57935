package quantise

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/mkgen/mkgen/internal/atomicfile"
	"github.com/mkgen/mkgen/models"
	"github.com/mkgen/mkgen/models/checkpoint"
	"github.com/mkgen/mkgen/models/quant"
)

// Options say how a checkpoint is quantised.
type Options struct {
	Format     Format
	Head       bool  // the LM head too, where it is a matrix of its own
	ShardBytes int64 // of data in a file at most, but for a file of one matrix; 5 GB for 0, as transformers has it
	Digests    bool  // the report has each tensor's Digest

	Reading models.Reading // of config.json
	// Progress, if not nil, is called with the bytes of the source that are done, and all of them.
	Progress func(done, total int64)
}

// shardBytes is how much transformers writes into a file.
const shardBytes = 5e9

// Checkpoint quantises the checkpoint in directory dir into directory out, which is made, and appears whole or not at
// all. Every matrix called *_proj.weight is quantised; embeddings, norms, biases and, but for Options.Head, the LM head
// are copied, as are the files beside the weights.
//
// Refused: an out that has something in it, a checkpoint that is quantised already, one that quant.Open refuses, one of
// a family that package models knows whose config.json it refuses, or whose tensors are missing or of another shape,
// matrices whose columns are no multiple of the group, weights that are not finite. Errors name file or tensor.
func Checkpoint(ctx context.Context, dir, out string, o Options) (*Report, error) {
	c, err := quant.Open(dir)
	if err != nil {
		return nil, err
	}
	j := &job{ctx: ctx, source: c, dir: dir, o: o}
	if err = j.prepare(); err != nil {
		return nil, errors.Join(fmt.Errorf("checkpoint %s: %w", dir, err), c.Close())
	}
	err = atomicfile.Dir(out, j.fill)
	return &j.report, errors.Join(err, c.Close())
}

// job is one call of Checkpoint.
type job struct {
	ctx     context.Context
	source  *quant.Checkpoint
	dir     string
	o       Options
	files   [][]piece
	ignored []string
	config  []byte
	report  Report

	done, total int64
}

// prepare decides everything that can be without reading weights.
func (j *job) prepare() error {
	if method := j.source.Method(); method != "" {
		return fmt.Errorf("found weights that are quantised already (%s), want those that they were made from", method)
	}
	text, err := j.source.Files().Text(checkpoint.ConfigFile)
	if err != nil {
		return err
	}
	if err := j.checkModel(text); err != nil {
		return err
	}
	infos := j.source.Files().List()
	pieces, ignored, err := plan(j.source, infos, j.o.Format, j.o.Head)
	if err != nil {
		return err
	}
	most := j.o.ShardBytes
	if most == 0 {
		most = shardBytes
	}
	j.files, j.ignored = shards(pieces, most), ignored
	for _, info := range infos {
		n, _ := info.Bytes()
		j.total += n
	}
	j.config, err = configWith(text, j.o.Format, ignored)
	j.report = Report{Format: j.o.Format.Name, Ignored: ignored}
	return err
}

// checkModel compares the tensors with config.json, where it is of a family that is known and names them as it does.
func (j *job) checkModel(text []byte) error {
	config, _, err := j.o.Reading.ParseQuantised(bytes.NewReader(text))
	var field *models.FieldError
	switch {
	case errors.As(err, &field) && strings.HasSuffix(field.Field, "model_type"):
		return nil
	case err != nil:
		return fmt.Errorf("%s: %w", checkpoint.ConfigFile, err)
	case config.TextPart || len(config.Skipped) > 0:
		return nil
	}
	return j.source.Lacks(config)
}

// fill writes all files into dir, those of the weights last.
func (j *job) fill(dir string) error {
	left, err := copyOthers(j.ctx, j.dir, dir)
	if err != nil {
		return err
	}
	j.report.LeftOut = left
	if err := write(filepath.Join(dir, checkpoint.ConfigFile), func(w io.Writer) error {
		_, err := w.Write(j.config)
		return err
	}); err != nil {
		return err
	}
	index := indexFile{WeightMap: map[string]string{}}
	for i, pieces := range j.files {
		name := shardName(i, len(j.files))
		if err := write(filepath.Join(dir, name), func(w io.Writer) error { return j.shard(w, pieces) }); err != nil {
			return err
		}
		for _, p := range pieces {
			index.Metadata.TotalSize += p.bytes()
			for _, t := range p.out {
				index.WeightMap[t.Name] = name
			}
		}
	}
	j.report.Bytes = index.Metadata.TotalSize
	if len(j.files) == 1 {
		return nil
	}
	text, err := json.MarshalIndent(index, "", "  ")
	if err != nil {
		return err
	}
	return write(filepath.Join(dir, checkpoint.IndexFile), func(w io.Writer) error {
		_, err := w.Write(append(text, '\n'))
		return err
	})
}

// indexFile says in which file each tensor is.
type indexFile struct {
	Metadata struct {
		TotalSize int64 `json:"total_size"`
	} `json:"metadata"`
	WeightMap map[string]string `json:"weight_map"`
}

// shard writes one file of weights, a piece at a time.
func (j *job) shard(w io.Writer, pieces []piece) error {
	var list []checkpoint.TensorInfo
	var of []*piece
	var part []int // of the piece
	for i := range pieces {
		for n, t := range pieces[i].out {
			list, of, part = append(list, t), append(of, &pieces[i]), append(part, n)
		}
	}
	var now *rounded
	return checkpoint.WriteTensors(w, list, func(i int, w io.Writer) (err error) {
		p := of[i]
		if err := j.ctx.Err(); err != nil {
			return err
		}
		switch {
		case !p.rounded:
			err = j.copied(w, p)
		case part[i] == 0:
			if now, err = round(p.matrix, j.o.Format); err != nil {
				return err
			}
			j.report.add(p.matrix, now, j.o)
			_, err = w.Write(now.codes)
		case part[i] == 1:
			_, err = w.Write(now.scales)
		default:
			_, err = w.Write(shapeOf(p.matrix))
		}
		if part[i] == 0 {
			n, _ := p.info.Bytes()
			j.done += n
			if j.o.Progress != nil {
				j.o.Progress(j.done, j.total)
			}
		}
		return err
	})
}

// copied writes a tensor as it is, and refuses it where it is not finite.
func (j *job) copied(w io.Writer, p *piece) error {
	numbers := make([]float32, p.matrix.Cols)
	for row := range p.matrix.Rows {
		if err := finiteRow(p.matrix, row, numbers); err != nil {
			return err
		}
	}
	return j.source.Files().Reading(func(data func(string) []byte) error {
		_, err := w.Write(data(p.info.Name))
		return err
	})
}

// write makes a file of a directory that nobody else knows, and brings it to the disk.
func write(path string, fill func(w io.Writer) error) error {
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	b := bufio.NewWriterSize(f, 1<<20)
	err = fill(b)
	if err == nil {
		err = errors.Join(b.Flush(), f.Sync())
	}
	return errors.Join(err, f.Close())
}

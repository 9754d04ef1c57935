package quantise

import (
	"fmt"
	"slices"
	"strings"

	"github.com/mkgen/mkgen/models"
	"github.com/mkgen/mkgen/models/checkpoint"
	"github.com/mkgen/mkgen/models/problem"
	"github.com/mkgen/mkgen/models/quant"
)

// ofLayer is whether a module is a matrix of a layer under a name that some family has.
func ofLayer(module string) bool {
	_, number, ok := strings.Cut(module, "layers.")
	_, name, inLayer := strings.Cut(number, ".")
	return strings.HasSuffix(module, "_proj") || ok && inLayer &&
		slices.ContainsFunc(models.Families(), func(f models.Family) bool {
			for role, tensor := range f.Names {
				if role.OfLayer() && !role.IsNorm() && !role.IsBias() && strings.HasSuffix(tensor, "%d."+name+".weight") {
					return true
				}
			}
			return false
		})
}

// headOf is the name of the LM head's weight in a checkpoint; without one it is Llama's.
func headOf(c *quant.Checkpoint) string {
	for _, f := range models.Families() {
		if name, ok := f.Names[models.RoleHead]; ok && c.Matrix(name) != nil {
			return name
		}
	}
	return "lm_head.weight"
}

// piece is a tensor of the source and what it becomes.
type piece struct {
	matrix  *quant.Matrix
	info    checkpoint.TensorInfo // of the source
	out     []checkpoint.TensorInfo
	rounded bool
}

// bytes is the size of what it becomes.
func (p *piece) bytes() (n int64) {
	for _, t := range p.out {
		size, _ := t.Bytes()
		n += size
	}
	return n
}

// plan decides about every tensor, in the order of the files.
func plan(c *quant.Checkpoint, infos []checkpoint.TensorInfo, f Format, head bool) (
	pieces []piece, ignored []string, err error,
) {
	var p problem.List
	quantised, headName := 0, headOf(c)
	for _, info := range infos {
		m := c.Matrix(info.Name)
		one := piece{matrix: m, info: info, out: []checkpoint.TensorInfo{info}}
		module, weight := strings.CutSuffix(info.Name, ".weight")
		switch {
		case len(info.Shape) != 2 || !weight || strings.Contains(module, "embed"):
		case !ofLayer(module) && (info.Name != headName || !head):
			ignored = append(ignored, module)
		case m.Cols%f.columns(m.Cols) != 0 || m.Cols%8 != 0:
			p.Add(&checkpoint.Problem{File: info.File, Tensor: info.Name, Found: fmt.Sprintf("%d columns", m.Cols),
				Want: fmt.Sprintf("a multiple of %d", max(f.group, 8)), Why: "the format is " + f.Name})
		default:
			one.out, one.rounded = f.tensors(m), true
			quantised++
		}
		pieces = append(pieces, one)
	}
	switch hasHead := c.Matrix(headName) != nil; {
	case head && !hasHead:
		p.Add(&checkpoint.Problem{Tensor: headName, Found: "nothing", Want: "it, to be quantised",
			Why: "the head is the embedding here"})
	case !hasHead:
		ignored = append(ignored, "lm_head") // the module is there, with the embedding's weight
	}
	if quantised == 0 && p.Err() == nil {
		return nil, nil, fmt.Errorf(
			"found no matrix of a layer under a known name, such as *_proj.weight, want a transformer's layers")
	}
	return pieces, ignored, p.Err()
}

// shards cuts the pieces into files of at most n bytes of data each, or of one piece.
func shards(pieces []piece, most int64) (files [][]piece) {
	room := int64(-1)
	for _, p := range pieces {
		size := p.bytes()
		if size > room {
			files = append(files, nil)
			room = most
		}
		room -= size
		files[len(files)-1] = append(files[len(files)-1], p)
	}
	return files
}

// shardName is the name of a file of n, as transformers has it.
func shardName(i, n int) string {
	if n == 1 {
		return checkpoint.SingleFile
	}
	return fmt.Sprintf("model-%05d-of-%05d.safetensors", i+1, n)
}

package checkpoint

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"
)

// The files of a checkpoint directory.
const (
	ConfigFile = "config.json"
	SingleFile = "model.safetensors"
	IndexFile  = "model.safetensors.index.json"
)

// indexed is one line of an index: the tensor and the shard that holds it.
type indexed struct{ tensor, shard string }

// parseIndex reads model.safetensors.index.json: its member weight_map maps
// tensors to shards. The other member, metadata, is not used: its total_size is
// known to be wrong in published checkpoints.
func parseIndex(text []byte) ([]indexed, error) {
	t, err := newJSONText(IndexFile, text)
	if err != nil {
		return nil, err
	}
	var lines []indexed
	err = t.object("", func(name string) error {
		if name != "weight_map" {
			return t.skip()
		}
		return t.object("", func(tensor string) error {
			shard, err := t.text(tensor, "shard")
			if err == nil && !validShard(shard) {
				err = &Problem{File: IndexFile, Tensor: tensor, Found: fmt.Sprintf("shard %q", shorten(shard)),
					Want: "the name of a .safetensors file in the same directory"}
			}
			lines = append(lines, indexed{tensor, shard})
			return err
		})
	})
	if err == nil && len(lines) == 0 {
		err = &Problem{File: IndexFile, Found: "no tensor in weight_map", Want: "the shard of each tensor"}
	}
	if err != nil {
		return nil, err
	}
	return lines, nil
}

// validShard reports whether name is a plain file name, so that an index cannot
// reach outside its directory.
func validShard(name string) bool {
	return strings.HasSuffix(name, ".safetensors") && filepath.IsLocal(name) &&
		!strings.ContainsAny(name, "/\\\x00")
}

// shards returns the files that an index names, sorted, each once.
func shards(lines []indexed) []string {
	names := make([]string, len(lines))
	for i, line := range lines {
		names[i] = line.shard
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// checkIndex compares the index with what the shards hold, where where maps the
// name of each tensor to its shard. Tensors that are ignored may be unlisted.
func checkIndex(lines []indexed, where map[string]string, inOrder []string, ignored map[string]bool, p *problems) {
	listed := map[string]bool{}
	for _, line := range lines {
		listed[line.tensor] = true
		switch shard, ok := where[line.tensor]; {
		case !ok:
			p.add(Problem{File: line.shard, Tensor: line.tensor, Found: "no such tensor", Want: "it, as " + IndexFile + " says"})
		case shard != line.shard:
			p.add(Problem{File: shard, Tensor: line.tensor, Found: "it here",
				Want: "it in " + line.shard + ", as " + IndexFile + " says"})
		}
	}
	for _, name := range inOrder {
		if !listed[name] && !ignored[name] {
			p.add(Problem{File: where[name], Tensor: name, Found: "it here", Want: "only what " + IndexFile + " lists"})
		}
	}
}

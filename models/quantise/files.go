package quantise

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"github.com/mkgen/mkgen/models/checkpoint"
)

// weightFiles are the endings of files that hold weights: of the source, which are written anew, or in formats that
// would hold the old ones.
var weightFiles = []string{".safetensors", ".bin", ".pt", ".pth", ".gguf", ".h5", ".msgpack", ".onnx", ".ot"}

// copyOthers copies the regular files of one directory that are no weights into another, and returns the names of those
// with old weights, which it leaves out. Directories and hidden files are left alone.
func copyOthers(ctx context.Context, from, to string) (left []string, err error) {
	entries, err := os.ReadDir(from)
	if err != nil {
		return nil, err
	}
	for _, e := range entries {
		name := e.Name()
		info, err := os.Stat(filepath.Join(from, name)) // what a link leads to
		switch {
		case errors.Is(err, fs.ErrNotExist):
			return nil, fmt.Errorf("checkpoint %s: %w", from, &checkpoint.Problem{File: name,
				Found: "a symbolic link to nothing", Want: "a file", Why: "is the download complete?"})
		case err != nil:
			return nil, err
		case !info.Mode().IsRegular() || name[0] == '.' || name == checkpoint.ConfigFile || name == checkpoint.IndexFile:
			continue
		case slices.Contains(weightFiles, filepath.Ext(name)):
			if filepath.Ext(name) != ".safetensors" {
				left = append(left, name)
			}
			continue
		}
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		if err := copyFile(filepath.Join(from, name), filepath.Join(to, name)); err != nil {
			return nil, err
		}
	}
	return left, nil
}

func copyFile(from, to string) error {
	f, err := os.Open(from)
	if err != nil {
		return err
	}
	defer f.Close()
	return write(to, func(w io.Writer) error {
		_, err := io.Copy(w, f)
		return err
	})
}

// configWith is config.json with the configuration that compressed-tensors writes, its fields sorted as transformers
// does. Fields of the model are as they were.
func configWith(text []byte, f Format, ignored []string) ([]byte, error) {
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(text, &fields); err != nil {
		return nil, fmt.Errorf("%s: %w", checkpoint.ConfigFile, err)
	}
	own, err := json.Marshal(f.config(ignored))
	if err != nil {
		return nil, err
	}
	fields["quantization_config"] = own
	var out bytes.Buffer
	e := json.NewEncoder(&out)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	err = e.Encode(fields)
	return out.Bytes(), err
}

// object is a JSON object, whose fields are written in the order of their names.
type object = map[string]any

// config is quantization_config as version 0.20.0 of compressed-tensors writes it: every linear layer but those
// ignored, weights only.
func (f Format) config(ignored []string) object {
	kind, group := "int", any(nil)
	if f.float {
		kind = "float"
	}
	if f.group > 0 {
		group = f.group
	}
	weights := object{"dynamic": false, "group_size": group, "num_bits": f.bits, "strategy": f.strategy, "symmetric": true,
		"type": kind}
	return object{
		"config_groups": object{"group_0": object{"format": f.layout, "input_activations": nil, "output_activations": nil,
			"targets": []string{"Linear"}, "weights": weights}},
		"format": f.layout, "global_compression_ratio": nil, "ignore": ignored, "kv_cache_scheme": nil,
		"moe_sparsity_config": nil, "quant_method": "compressed-tensors", "quantization_status": "compressed",
		"sparsity_config": object{}, "transform_config": object{}, "version": "0.20.0",
	}
}

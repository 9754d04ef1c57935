package quant

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"unicode/utf8"

	"github.com/mkgen/mkgen/models"
	"github.com/mkgen/mkgen/models/checkpoint"
)

// methods are the quantisation methods that are read, for messages.
const methods = `"gptq", "awq", "compressed-tensors", "fp8" or "modelopt"`

// readConfig reads what config.json says of the quantisation, or else the file that a method keeps beside it:
// quantize_config.json of GPTQ, hf_quant_config.json of ModelOpt. The importer is nil where nothing is quantised.
func readConfig(text func(name string) ([]byte, error)) (method string, imp importer, err error) {
	var p problems
	whole, err := readFile(text, checkpoint.ConfigFile, &p)
	if err != nil {
		return "", nil, err
	}
	own, dtype := ownConfig(whole), dtypeOf(whole)
	for _, name := range models.TextParts() { // of a multimodal model
		if part := whole.object(name); len(own.names) == 0 && len(part.names) > 0 {
			own = ownConfig(part)
			if whole.raw("dtype") == nil && whole.raw("torch_dtype") == nil {
				dtype = dtypeOf(part)
			}
		}
	}
	method = own.text("quant_method", "")
	if len(own.names) == 0 {
		if method, own, err = beside(text, &p); err != nil {
			return "", nil, err
		}
	}
	if method == "" && own != nil && len(own.names) > 0 {
		method = guess(own)
	}
	if own != nil && len(own.names) > 0 {
		imp = newImporter(method, own, dtype)
	}
	if err := p.Err(); err != nil {
		return "", nil, err
	}
	return method, imp, nil
}

// ownConfig is what config.json, or its text part, says itself.
func ownConfig(f *fields) *fields {
	if own := f.object("quantization_config"); len(own.names) > 0 {
		return own
	}
	return f.object("compression_config")
}

// beside looks for the files of single methods.
func beside(text func(name string) ([]byte, error), p *problems) (string, *fields, error) {
	for _, file := range []struct{ name, method, member string }{
		{"quantize_config.json", "gptq", ""}, {"hf_quant_config.json", "modelopt", "quantization"},
	} {
		f, err := readFile(text, file.name, p)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		} else if err != nil {
			return "", nil, err
		}
		if file.member != "" {
			inner := f.object(file.member)
			f.others("producer")
			f = inner
		}
		return f.text("quant_method", file.method), f, nil
	}
	return "", nil, nil
}

// guess names the method of a configuration that does not: old ones of ModelOpt, compressed-tensors and GPTQ.
func guess(f *fields) string {
	switch {
	case f.values["quant_algo"] != nil:
		return "modelopt"
	case f.values["config_groups"] != nil:
		return "compressed-tensors"
	case f.values["bits"] != nil && f.values["desc_act"] != nil:
		return "gptq"
	}
	return ""
}

// readFile reads an object from a file of at most models.MaxFileBytes.
func readFile(text func(name string) ([]byte, error), name string, p *problems) (*fields, error) {
	raw, err := text(name)
	if err != nil {
		return nil, err
	}
	if len(raw) > models.MaxFileBytes {
		return nil, fmt.Errorf("%s: found %d bytes, want at most %d", name, len(raw), models.MaxFileBytes)
	}
	if !json.Valid(raw) {
		return nil, fmt.Errorf("%s: found text that is not JSON, want an object", name)
	}
	if !bytes.HasPrefix(bytes.TrimSpace(raw), []byte("{")) || !utf8.Valid(raw) {
		return nil, fmt.Errorf("%s: found %s, want an object of UTF-8 text", name, show(raw))
	}
	path := ""
	if name != checkpoint.ConfigFile {
		path = name + ": "
	}
	return newFields(path, raw, p), nil
}

// dtypeOf returns the type that the model computes in: bf16 where config.json does not say.
func dtypeOf(f *fields) models.DType {
	for _, field := range []string{"dtype", "torch_dtype"} {
		switch f.text(field, "") {
		case "":
		case "bfloat16":
			return models.BF16
		case "float16":
			return models.F16
		case "float32":
			return models.F32
		default:
			f.refuse(field, `"bfloat16", "float16" or "float32"`, "")
		}
	}
	return models.BF16
}

// newImporter reads a method's configuration; problems go to f's list.
func newImporter(method string, f *fields, dtype models.DType) importer {
	f.asked["quant_method"] = true
	switch method {
	case "gptq":
		return newGPTQ(f)
	case "awq":
		return newAWQ(f)
	case "compressed-tensors":
		return newCompressed(f)
	case "auto-round", "intel/auto-round":
		if imp := newAutoRound(f); imp != nil {
			return imp
		}
	case "fp8":
		return newFP8(f, dtype)
	case "modelopt":
		return newModelOpt(f, dtype)
	}
	f.refuse("quant_method", methods, advice(method))
	return nil
}

// advice says what to do about a method that is not read.
func advice(method string) string {
	switch method {
	case "bitsandbytes":
		return "load it with transformers, call dequantize, save it and quantise it with one of these"
	case "gguf":
		return "take the safetensors files that it was made from"
	case "mxfp4":
		return "weights of experts are not supported: compressed-tensors' mxfp4-pack-quantized is"
	case "auto-round", "intel/auto-round":
		return "export it as auto_gptq, auto_awq or llm_compressor"
	}
	return "quantise the model that it was made from with one of these"
}

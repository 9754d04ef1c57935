//go:build cuda

// Launcher prepares a launch of the generated package of the model tiny and knows nothing
// that the package does not say. Its device is a directory: a buffer is a file
// named by its address, the launch a file of arguments and the params block.
//
// Usage: launcher tensors device pages epoch token …
// Tensors is a directory of one file a tensor, row-major bf16.
package main

import (
	"encoding/binary"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	step "example.com/fresh/tiny"
)

const chosen = 2 // tokens that the kernel is to choose

func main() {
	if err := run(os.Args[1], os.Args[2], numbers(os.Args[3:])); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func numbers(args []string) []uint32 {
	var out []uint32
	for _, a := range args {
		n, err := strconv.ParseUint(a, 10, 32)
		if err != nil {
			panic(err)
		}
		out = append(out, uint32(n))
	}
	return out
}

func run(tensors, device string, args []uint32) error {
	pages, epoch, prompt := args[0], args[1], args[2:]
	contents, err := fill(tensors, pages, epoch, prompt)
	if err != nil {
		return err
	}
	p := step.Params{Pos: 0, Steps: uint32(len(prompt) + chosen - 1), Known: uint32(len(prompt)), Pages: pages}
	at := uint64(1 << 32)
	for _, b := range step.Buffers() {
		data, ok := contents[b.Name]
		if !ok {
			data = make([]byte, b.Bytes)
		}
		if len(data) == 0 || b.Bytes != 0 && int64(len(data)) != b.Bytes || ok != (b.Fill != "" || b.Bytes == 0) {
			return fmt.Errorf("buffer %s of %d bytes is given %d", b.Name, b.Bytes, len(data))
		}
		at = (at + uint64(b.Align) - 1) / uint64(b.Align) * uint64(b.Align)
		if err := os.WriteFile(filepath.Join(device, fmt.Sprintf("%x", at)), data, 0o666); err != nil {
			return err
		}
		if err := p.Bind(b.Name, step.DevicePtr(at)); err != nil {
			return err
		}
		at += uint64(len(data))
	}
	return step.Launch(step.FunctionOf(func(grid, threads, shared int, params []byte) error {
		text := fmt.Sprintf("%s %d %d %d %x\n", step.KernelName, grid, threads, shared, params)
		return os.WriteFile(filepath.Join(device, "launch"), []byte(text), 0o666)
	}), &p)
}

// fill is what the package's comment tells to write.
func fill(tensors string, pages, epoch uint32, prompt []uint32) (map[string][]byte, error) {
	m := map[string][]byte{
		"kv":      make([]byte, int(pages)*step.Layers*step.PageBytes),
		"ends":    []byte(strings.Repeat("\xff", int(size("ends")))),
		"stop":    words(0),
		"epoch":   words(epoch),
		"barrier": words(epoch),
		"abort":   words(0, 0),
		"records": make([]byte, size("records")),
		"tokens":  append(words(prompt...), make([]byte, 4*chosen)...),
		"stream":  make([]byte, 4*(len(prompt)+chosen)),
		"times":   make([]byte, 4*(len(prompt)+chosen)),
	}
	// words with tags
	for _, name := range []string{"states", "query_words", "kv_words", "attn_words", "o_words", "down_words"} {
		m[name] = make([]byte, size(name))
	}
	for i := range pages { // backwards: any order will do
		m["page_table"] = append(m["page_table"], words(pages-1-i)...)
	}
	for _, t := range step.Tables() {
		m[t.Name] = t.Bytes
	}
	read := func(tensor string) []byte {
		data, err := os.ReadFile(filepath.Join(tensors, tensor))
		if err != nil {
			panic(err)
		}
		return data
	}
	for _, b := range step.Buffers() {
		if b.Name == "embed" { // absent where the LM head is the same matrix
			m[b.Name] = read("model.embed_tokens.weight")
		}
	}
	for l := range step.Layers {
		for _, norm := range []string{"input_layernorm", "post_attention_layernorm"} {
			m["gains"] = append(m["gains"], read(fmt.Sprintf("model.layers.%d.%s.weight", l, norm))...)
		}
	}
	m["gains"] = append(m["gains"], read("model.norm.weight")...)
	m["weights"] = make([]byte, size("weights"))
	for _, e := range step.Packing() {
		for l := range e.Layers {
			if err := pack(m["weights"][e.Base+int64(l)*e.LayerStride:], e, l, read); err != nil {
				return nil, err
			}
		}
	}
	return m, nil
}

// pack writes one matrix of one layer into the layer's image.
func pack(image []byte, e step.PackEntry, layer int, read func(string) []byte) error {
	const order = "bf16, little-endian; element (r, k) of a tile of 8 rows lies at byte (k/32)*512 + r*64 + ((k%32/8) xor (r/2))*16 + (k%8)*2, the next tile 16*KPadded bytes on"
	if e.Order != order {
		return fmt.Errorf("matrix %s: elements ordered as %q", e.Matrix, e.Order)
	}
	for _, run := range e.Sources {
		tensor := read(strings.ReplaceAll(run.Tensor, "%d", fmt.Sprint(layer)))
		for i := range run.Count {
			row := tensor[(run.Source+i*run.SourceStep)*e.K*2:][:e.K*2]
			tile, r := (run.Row+i*run.RowStep)/e.TileRows, (run.Row+i*run.RowStep)%e.TileRows
			at := int64(tile) * int64(16*e.KPadded)
			for k := range e.K {
				copy(image[at+int64(k/32*512+r*64+(k%32/8^r/2)*16+k%8*2):][:2], row[2*k:])
			}
		}
	}
	return nil
}

func size(name string) int64 {
	for _, b := range step.Buffers() {
		if b.Name == name {
			return b.Bytes
		}
	}
	panic("no buffer " + name)
}

func words(ws ...uint32) []byte {
	var b []byte
	for _, w := range ws {
		b = binary.LittleEndian.AppendUint32(b, w)
	}
	return b
}

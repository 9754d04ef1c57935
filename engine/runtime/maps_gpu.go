//go:build cuda

package runtime

import (
	"errors"
	"fmt"

	"github.com/mkgen/mkgen/dsl/ir"
)

// encode makes the tensor map that b holds, once, from where the buffer lies that it describes. It does nothing for
// other buffers.
func (g *GPU) encode(b *ir.Buf) error {
	if b.Map == nil || g.mem[b.Name] != nil {
		return nil
	}
	of, err := g.buffer(b.Map.Of.Name)
	if err != nil {
		return fmt.Errorf("tensor map %s: %w", b.Name, err)
	}
	if p := b.Map.Problem(of.Bytes()); p != "" {
		return errors.New(p)
	}
	text, err := of.TensorMap(b.Map.From, b.Map.Within(of.Bytes()), b.Map.Strides, b.Map.Box)
	if err != nil {
		return fmt.Errorf("tensor map %s of %s: %w", b.Name, b.Map.Of.Name, err)
	}
	m, err := g.dev.Alloc(int64(len(text)))
	if err != nil {
		return err
	}
	g.mem[b.Name] = m
	return m.Upload(0, text)
}

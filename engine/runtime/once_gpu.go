//go:build cuda

package runtime

import (
	"errors"

	"github.com/mkgen/mkgen/dsl/ir"
)

// RunOnce loads another kernel's cubin, launches it cooperatively on the same
// buffers, waits for it and unloads it. Last is its device time afterwards. The
// kernel must have been printed with its params block by value.
func (g *GPU) RunOnce(k *ir.Kernel, cubin []byte, scalars map[string]uint64) (err error) {
	m, err := g.dev.LoadModule(cubin)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, m.Close()) }()
	_, size := k.ParamsLayout()
	other := &GPU{k: k, dev: g.dev, stream: g.stream, mem: g.mem, host: g.host, begin: g.begin, end: g.end,
		block: make([]byte, size)}
	if other.fn, err = m.Function(k.Name); err != nil {
		return err
	}
	if err := other.fn.SetDynamicShared(k.SharedBytes); err != nil {
		return err
	}
	err = Launch(other, scalars)
	g.Last = other.Last
	return err
}

// Sizes are the bytes of every buffer in device memory.
func (g *GPU) Sizes() map[string]int64 {
	sizes := map[string]int64{}
	for name, m := range g.mem {
		sizes[name] = m.Bytes()
	}
	return sizes
}

//go:build cuda

package runtime

import "github.com/mkgen/mkgen/dsl/ir"

// RunOnce loads another kernel's cubin, launches it cooperatively on the same
// buffers and waits for it. Last is its device time afterwards.
func (g *GPU) RunOnce(k *ir.Kernel, cubin []byte, scalars map[string]uint64) error {
	_, size := k.ParamsLayout()
	other := &GPU{k: k, dev: g.dev, stream: g.stream, mem: g.mem, host: g.host, begin: g.begin, end: g.end, block: make([]byte, size)}
	var err error
	if other.fn, err = other.function(cubin); err != nil {
		return err
	}
	err = Launch(other, scalars)
	g.Last = other.Last
	return err
}

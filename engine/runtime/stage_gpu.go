//go:build cuda

package runtime

import (
	"errors"

	"github.com/mkgen/mkgen/engine/runtime/cuda"
)

// Stage makes pinned memory with a stream of its own, so that copies run while
// the next block is packed.
func (g *GPU) Stage(n int) (Staging, error) {
	host, err := g.dev.AllocHost(n)
	if err != nil {
		return nil, err
	}
	stream, err := g.dev.NewStream()
	if err != nil {
		return nil, errors.Join(err, host.Free())
	}
	return &pinned{g: g, host: host, stream: stream}, nil
}

// pinned is a GPU's Staging.
type pinned struct {
	g      *GPU
	host   *cuda.Host
	stream *cuda.Stream
	freed  bool
}

func (p *pinned) Bytes() []byte { return p.host.Bytes() }

func (p *pinned) Write(name string, offset int64, n int) error {
	m, err := p.g.buffer(name)
	if err != nil {
		return err
	}
	return p.stream.CopyIn(m, offset, p.host, 0, int64(n))
}

func (p *pinned) Wait() error { return p.stream.Sync() }

func (p *pinned) Free() error {
	if p.freed {
		return nil
	}
	p.freed = true
	return errors.Join(p.Wait(), p.stream.Close(), p.host.Free())
}

//go:build cuda

package runtime

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/mkgen/mkgen/dsl/ir"
	"github.com/mkgen/mkgen/engine/runtime/cuda"
)

// gpuGraph is a graph of kernels on a GPU.
type gpuGraph struct {
	*ir.Graph
	functions []*cuda.Function
	made      map[int]*cuda.Graph // by the number of steps, for these scalars
	scalars   map[string]uint64
}

// NewGPUGraph is NewGPU for a graph of kernels, with a cubin of each.
func NewGPUGraph(g *ir.Graph, dev *cuda.Device, cubins [][]byte) (*GPU, error) {
	gpu, err := newGPU(g.Kernels[0], dev)
	if err != nil {
		return nil, err
	}
	if gpu.graph, err = gpu.loadGraph(g, cubins); err != nil {
		return nil, errors.Join(err, gpu.Close())
	}
	return gpu, nil
}

func (g *GPU) loadGraph(graph *ir.Graph, cubins [][]byte) (*gpuGraph, error) {
	if len(cubins) != len(graph.Kernels) {
		return nil, fmt.Errorf("%d cubins of a graph of %d kernels", len(cubins), len(graph.Kernels))
	}
	out := &gpuGraph{Graph: graph}
	for i, k := range graph.Kernels {
		fn, err := g.function(k, cubins[i])
		if err != nil {
			return nil, err
		}
		if err := fn.PreferShared(); err != nil {
			return nil, err
		}
		out.functions = append(out.functions, fn)
	}
	return out, nil
}

// RunsGraph is whether it was made for a graph of kernels.
func (g *GPU) RunsGraph() bool { return g.graph != nil }

// SwapGraph is Swap for a graph of kernels.
func (g *GPU) SwapGraph(graph *ir.Graph, cubins [][]byte) (restore func(), err error) {
	other, err := g.loadGraph(graph, cubins)
	if err != nil {
		return nil, err
	}
	old := g.graph
	g.graph = other
	return func() { g.graph = old }, nil
}

// ready makes the graph for the scalars, unless the one there is made for these: of one
// step, and of as many as a launch runs at once.
func (g *GPU) ready(scalars map[string]uint64) error {
	of := map[string]uint64{} // what the blocks depend on: buffers stay where they are
	for _, p := range g.k.Params {
		of[p.Name] = scalars[p.Name]
	}
	if g.graph.made != nil && maps.Equal(of, g.graph.scalars) {
		return nil
	}
	if err := g.graph.close(); err != nil {
		return err
	}
	step, err := g.step(scalars)
	if err != nil {
		return err
	}
	g.graph.made, g.graph.scalars = map[int]*cuda.Graph{}, of
	for _, steps := range []int{1, max(1, g.graph.Steps)} {
		if g.graph.made[steps] == nil {
			if g.graph.made[steps], err = g.dev.NewGraph(slices.Repeat(step, steps)); err != nil {
				return err
			}
		}
	}
	return nil
}

// step is the launches of one step.
func (g *GPU) step(scalars map[string]uint64) (launches []cuda.GraphLaunch, err error) {
	for i, n := range g.graph.Nodes {
		of := maps.Clone(scalars)
		maps.Copy(of, n.Scalars)
		if err := g.fill(of); err != nil {
			return nil, err
		}
		k := g.graph.Kernels[n.Kernel]
		launches = append(launches, cuda.GraphLaunch{Function: g.graph.functions[n.Kernel], Grid: k.Grid, Block: 32 * k.Warps,
			Shared: k.SharedBytes, Params: bytes.Clone(g.block), Dependent: g.graph.Dependent && i > 0})
	}
	return launches, nil
}

// close releases what was made; it can be made again.
func (g *gpuGraph) close() (err error) {
	for _, m := range g.made {
		err = errors.Join(err, m.Close())
	}
	g.made = nil
	return err
}

// startGraph queues the graph as often as the scalar Repeat says, beside the caller:
// queuing waits where the queue is full.
func (g *GPU) startGraph(scalars map[string]uint64) error {
	if err := g.ready(scalars); err != nil {
		return err
	}
	if err := g.begin.Record(g.stream); err != nil {
		return err
	}
	made, left, atOnce := g.graph.made, int(scalars[g.graph.Repeat]), max(1, g.graph.Steps)
	g.await(func() error {
		for left > 0 {
			n := 1
			if left >= atOnce {
				n = atOnce
			}
			if err := made[n].Launch(g.stream); err != nil {
				return err
			}
			left -= n
		}
		return g.end.Record(g.stream)
	})
	return nil
}

//go:build cuda

package runtime

import (
	"bytes"
	"errors"
	"fmt"
	"maps"

	"github.com/mkgen/mkgen/dsl/ir"
	"github.com/mkgen/mkgen/megakernel/runtime/cuda"
)

// gpuGraph is a graph of kernels on a GPU.
type gpuGraph struct {
	*ir.Graph
	functions []*cuda.Function
	made      *cuda.Graph // of blocks
	blocks    []byte      // the params blocks of all nodes
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

// ready makes the graph for the scalars, unless the one there is made for these.
func (g *GPU) ready(scalars map[string]uint64) error {
	var launches []cuda.GraphLaunch
	var all []byte
	for i, n := range g.graph.Nodes {
		of := maps.Clone(scalars)
		maps.Copy(of, n.Scalars)
		if err := g.fill(of); err != nil {
			return err
		}
		k, block := g.graph.Kernels[n.Kernel], bytes.Clone(g.block)
		launches = append(launches, cuda.GraphLaunch{Function: g.graph.functions[n.Kernel], Grid: k.Grid, Block: 32 * k.Warps, Shared: k.SharedBytes,
			Params: block, Dependent: g.graph.Dependent && i > 0})
		all = append(all, block...)
	}
	if g.graph.made != nil && bytes.Equal(all, g.graph.blocks) {
		return nil
	}
	if g.graph.made != nil {
		if err := g.graph.made.Close(); err != nil {
			return err
		}
	}
	made, err := g.dev.NewGraph(launches)
	if err != nil {
		return err
	}
	g.graph.made, g.graph.blocks = made, all
	return nil
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
	made, times := g.graph.made, scalars[g.graph.Repeat]
	g.await(func() error {
		for range times {
			if err := made.Launch(g.stream); err != nil {
				return err
			}
		}
		return g.end.Record(g.stream)
	})
	return nil
}

package runtime

import (
	"fmt"

	"github.com/mkgen/mkgen/dsl/interp"
	"github.com/mkgen/mkgen/dsl/ir"
)

// simGraph is a graph of kernels on the executor.
type simGraph struct {
	*ir.Graph
	programs []*interp.Program
}

func loadGraph(g *ir.Graph) (*simGraph, error) {
	s := &simGraph{Graph: g}
	for _, k := range g.Kernels {
		p, err := interp.Load(k)
		if err != nil {
			return nil, err
		}
		s.programs = append(s.programs, p)
	}
	return s, nil
}

// NewSimGraph is NewSim for a graph of kernels. Its nodes run one after another; what
// might overlap on a GPU is checked as interp.Options.Dependent says.
func NewSimGraph(g *ir.Graph, seed uint64) (*Sim, error) {
	loaded, err := loadGraph(g)
	if err != nil {
		return nil, err
	}
	s, err := NewSim(g.Kernels[0], seed)
	if err != nil {
		return nil, err
	}
	s.graph = loaded
	return s, nil
}

// RunsGraph is whether it was made for a graph of kernels.
func (s *Sim) RunsGraph() bool { return s.graph != nil }

// SwapGraph is Swap for a graph of kernels.
func (s *Sim) SwapGraph(g *ir.Graph) (err error) {
	s.graph, err = loadGraph(g)
	return err
}

// run runs the graph as often as the scalar Repeat says.
func (g *simGraph) run(mem *interp.Memory, o interp.Options) (last *interp.Result, err error) {
	given := o.Params
	for step := range given[g.Repeat] {
		for i, n := range g.Nodes {
			o.Params = map[string]uint64{}
			for name, v := range given {
				o.Params[name] = v
			}
			for name, v := range n.Scalars {
				o.Params[name] = v
			}
			o.Dependent = g.Dependent && i > 0
			if last, err = g.programs[n.Kernel].Run(mem, o); err != nil {
				return nil, fmt.Errorf("step %d, node %d of %d: %w", step, i, len(g.Nodes), err)
			}
			o.Seed += 0x9e3779b97f4a7c15
		}
	}
	return last, nil
}

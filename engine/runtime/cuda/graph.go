//go:build cuda

package cuda

/*
#include <cuda.h>
#include <stdlib.h>

static CUresult mkgen_begin_capture(CUstream s) { return cuStreamBeginCapture(s, CU_STREAM_CAPTURE_MODE_RELAXED); }

static CUresult mkgen_end_capture(CUstream s, CUgraph *g) { return cuStreamEndCapture(s, g); }

// A launch that, where dependent, may start before the one before it in the stream has ended.
static CUresult mkgen_launch(CUfunction f, unsigned grid, unsigned block, unsigned shared, CUstream s, int dependent, void *block_of_params) {
  void *params[1] = {block_of_params};
  CUlaunchAttribute attribute = {.id = CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION};
  attribute.value.programmaticStreamSerializationAllowed = 1;
  CUlaunchConfig c = {.gridDimX = grid, .gridDimY = 1, .gridDimZ = 1, .blockDimX = block, .blockDimY = 1, .blockDimZ = 1,
                      .sharedMemBytes = shared, .hStream = s, .attrs = &attribute, .numAttrs = dependent ? 1 : 0};
  return cuLaunchKernelEx(&c, f, params, NULL);
}

// How many edges a graph has, and how many of them are programmatic.
static CUresult mkgen_edges(CUgraph g, size_t *all, size_t *programmatic) {
  *all = *programmatic = 0;
#if CUDA_VERSION >= 12030
  CUresult err = cuGraphGetEdges_v2(g, NULL, NULL, NULL, all);
  if (err != CUDA_SUCCESS || *all == 0) return err;
  CUgraphNode *from = calloc(*all, sizeof *from), *to = calloc(*all, sizeof *to);
  CUgraphEdgeData *data = calloc(*all, sizeof *data);
  err = from && to && data ? cuGraphGetEdges_v2(g, from, to, data, all) : CUDA_ERROR_OUT_OF_MEMORY;
  for (size_t i = 0; err == CUDA_SUCCESS && i < *all; i++) *programmatic += data[i].type == CU_GRAPH_DEPENDENCY_TYPE_PROGRAMMATIC;
  free(from), free(to), free(data);
  return err;
#else
  return CUDA_ERROR_NOT_SUPPORTED;
#endif
}

static CUresult mkgen_instantiate(CUgraphExec *e, CUgraph g) { return cuGraphInstantiateWithFlags(e, g, 0); }
*/
import "C"

import (
	"errors"
	"fmt"
	"unsafe"

	"gorgonia.org/cu"
)

// Graph is launches that were recorded once, in order, to be made again as a whole.
type Graph struct {
	handle
	exec C.CUgraphExec
}

// GraphLaunch is one of a graph's launches; Function.LaunchCooperative says what its numbers are.
type GraphLaunch struct {
	Function            *Function
	Grid, Block, Shared int
	Params              []byte // copied as the graph is made
	// Dependent launches may start before the launch before them has ended, where its kernel lets them; the kernel
	// waits itself for what it needs (griddepcontrol).
	Dependent bool
}

// NewGraph records launches. A driver that does not make every Dependent one's edge a programmatic one is an error:
// what is timed then would not be what was asked for.
func (d *Device) NewGraph(launches []GraphLaunch) (g *Graph, err error) {
	dependent := 0
	for i, l := range launches {
		if err := l.check(d); err != nil {
			return nil, fmt.Errorf("cuda: graph: launch %d: %w", i, err)
		}
		if l.Dependent {
			dependent++
		}
	}
	s, err := d.NewStream()
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	g = &Graph{}
	g.handle = handle{dev: d, what: "graph", free: func() error { return driverError(C.cuGraphExecDestroy(g.exec)) }}
	err = s.use("record a graph", func() error {
		graph, err := capture(s.stream, launches)
		if err != nil {
			return err
		}
		defer C.cuGraphDestroy(graph)
		var all, programmatic C.size_t
		if err := driverError(C.mkgen_edges(graph, &all, &programmatic)); err != nil {
			return fmt.Errorf("edges: %w", err)
		}
		if int(programmatic) != dependent {
			return fmt.Errorf("%d of %d edges are programmatic, want %d", programmatic, all, dependent)
		}
		if err := driverError(C.mkgen_instantiate(&g.exec, graph)); err != nil {
			return err
		}
		d.keep(&g.handle)
		return nil
	})
	if err != nil {
		return nil, err
	}
	return g, nil
}

func (l *GraphLaunch) check(d *Device) error {
	f := l.Function
	switch {
	case f.module.dev != d:
		return errors.New("its kernel is of another device")
	case l.Grid < 1 || l.Block < 1 || l.Block > f.MaxThreads || l.Shared < 0:
		return fmt.Errorf("%s: %d blocks of %d threads with %d bytes: want at least 1 block, 1 to %d threads, at least 0 bytes", f.name, l.Grid, l.Block, l.Shared, f.MaxThreads)
	case len(l.Params) < 1 || len(l.Params) > 4096:
		return fmt.Errorf("%s: a parameter of %d bytes, want 1 to 4096", f.name, len(l.Params))
	}
	return nil
}

// capture records launches in a stream that nothing else uses.
func capture(s cu.Stream, launches []GraphLaunch) (graph C.CUgraph, err error) {
	stream := *(*C.CUstream)(unsafe.Pointer(&s))
	if err := driverError(C.mkgen_begin_capture(stream)); err != nil {
		return nil, fmt.Errorf("capture: %w", err)
	}
	for i, l := range launches {
		dependent := C.int(0)
		if l.Dependent {
			dependent = 1
		}
		err = driverError(C.mkgen_launch(raw(l.Function.fn), C.uint(l.Grid), C.uint(l.Block), C.uint(l.Shared), stream,
			dependent, unsafe.Pointer(unsafe.SliceData(l.Params))))
		if err != nil {
			err = fmt.Errorf("launch %d of %s: %w", i, l.Function.name, err)
			break
		}
	}
	ended := driverError(C.mkgen_end_capture(stream, &graph)) // also when a launch failed: the stream captures no more
	if err == nil && ended == nil {
		return graph, nil
	}
	if ended == nil {
		C.cuGraphDestroy(graph)
	}
	return nil, errors.Join(err, ended)
}

// Launch queues all launches of the graph in the stream. A fault of a kernel shows later, at [Stream.Sync].
func (g *Graph) Launch(s *Stream) error {
	if s.dev != g.dev {
		return errors.New("cuda: launch a graph: graph and stream are of different devices")
	}
	return g.use("launch a graph", func() error {
		return s.held(func() error { return driverError(C.cuGraphLaunch(g.exec, *(*C.CUstream)(unsafe.Pointer(&s.stream)))) })
	})
}

// Close releases the graph, which must not be running. A second Close does nothing.
func (g *Graph) Close() error { return g.release("close a graph") }

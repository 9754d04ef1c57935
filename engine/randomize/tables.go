package randomize

import (
	"fmt"
	"math"

	"github.com/mkgen/mkgen/megakernel"
	"github.com/mkgen/mkgen/models"
	"github.com/mkgen/mkgen/models/synth"
	"github.com/mkgen/mkgen/pipeline"
)

// Buffers of the kernel beside those of the megakernel; Tables has their content.
const (
	bufRows    = "random_rows"    // where each packed row comes from
	bufTensors = "random_tensors" // key and scale of each tensor
)

const (
	// A tensor is the two words of its key, its scale as f32, and a word of nothing.
	tensorWords = 4
	// A row is the number of its tensor among those of a layer, above its row there.
	rowBits = 28
)

// Table is a buffer that must be allocated and written before the launch.
type Table struct {
	Name  string
	Words []uint32
}

// matrix is one of the megakernel's matrices.
type matrix struct {
	*pipeline.MatrixPlan
	layer    int // 0, or pipeline.FinalLayer
	firstRow int // in bufRows
}

// shape is what New learns of a megakernel.
type shape struct {
	config   *models.Config
	plan     *pipeline.Plan
	matrices []matrix // those of a layer, then the LM head
	rows     []uint32 // of bufRows
	perLayer []string // names of a layer's tensors, with %d
	head     string   // and of the LM head's
	vectors  []megakernel.VectorBuffer
	embed    bool // the embedding is a buffer of its own
}

// newShape numbers the tensors: those of the matrices of each layer, the LM head's,
// and the embedding.
func newShape(mk *megakernel.Kernel) *shape {
	s := &shape{config: &mk.Config, plan: mk.Plan, vectors: mk.VectorBuffers(), embed: mk.OwnEmbedding()}
	index := map[string]uint32{}
	for i := range mk.Plan.Layer {
		s.add(mk, i, 0, &mk.Plan.Layer[i], func(tensor string) uint32 {
			n, ok := index[tensor]
			if !ok {
				n = uint32(len(s.perLayer))
				index[tensor], s.perLayer = n, append(s.perLayer, tensor)
			}
			return n
		})
	}
	s.add(mk, len(mk.Plan.Layer), pipeline.FinalLayer, &mk.Plan.Final[0], func(tensor string) uint32 {
		s.head = tensor
		return 0
	})
	return s
}

func (s *shape) add(mk *megakernel.Kernel, i, layer int, m *pipeline.MatrixPlan, number func(tensor string) uint32) {
	s.matrices = append(s.matrices, matrix{m, layer, len(s.rows)})
	source := mk.Sources(i)
	for row := range m.Rows {
		from := source(row)
		s.rows = append(s.rows, number(from.Tensor)<<rowBits|uint32(from.Row))
	}
}

// The numbers of tensors.
func (s *shape) headTensor() int  { return s.config.Layers * len(s.perLayer) }
func (s *shape) embedTensor() int { return s.headTensor() + 1 }

// names are all tensors by their numbers.
func (s *shape) names() []string {
	var list []string
	for l := range s.config.Layers {
		for _, tensor := range s.perLayer {
			list = append(list, megakernel.TensorName(tensor, l))
		}
	}
	list = append(list, s.head)
	return append(list, s.config.TensorName(models.RoleEmbed))
}

// tensors is the content of bufTensors for one seed.
func (s *shape) tensors(seed uint64) ([]uint32, error) {
	c := s.config
	recipes := map[string]synth.Recipe{}
	for _, t := range synth.Tensors(*c) {
		recipes[t.Name] = t.Recipe
	}
	var words []uint32
	for _, name := range s.names() {
		recipe, ok := recipes[name]
		if !ok {
			return nil, fmt.Errorf("randomize: there is no recipe for tensor %s", name)
		}
		k0, k1 := synth.Key(seed, name)
		scale := math.Ldexp(float64(recipe.Mantissa), recipe.Exp)
		words = append(words, k0, k1, math.Float32bits(float32(scale)), 0)
	}
	return words, nil
}

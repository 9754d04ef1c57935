package checkpoint

import (
	"slices"

	"github.com/mkgen/mkgen/models"
)

// DTypes lists the element types that the tensors have on disk, those alone that the configuration
// needs, each once, in the order of the constants. What config.json says of them may be another.
func (c *Checkpoint) DTypes() (all []models.DType) {
	for _, name := range c.order {
		all = append(all, c.tensors[name].from)
	}
	slices.Sort(all)
	return slices.Compact(all)
}

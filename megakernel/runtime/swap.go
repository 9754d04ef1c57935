package runtime

import (
	"github.com/mkgen/mkgen/dsl/interp"
	"github.com/mkgen/mkgen/dsl/ir"
)

// Swap executes another kernel on the same buffers until restore is called. It
// must be of the same buffers and scalars.
func (s *Sim) Swap(k *ir.Kernel) (restore func(), err error) {
	p, err := interp.Load(k)
	if err != nil {
		return nil, err
	}
	old := s.program
	s.program = p
	return func() { s.program = old }, nil
}

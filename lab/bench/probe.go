package bench

import (
	"context"
	"fmt"

	"github.com/mkgen/mkgen/lab/gate"
	"github.com/mkgen/mkgen/megakernel"
	"github.com/mkgen/mkgen/tasks/attention"
)

// probe gives the subject what checks of single layers need, where they can be made: memory for
// what a kernel with a probe stores, and such kernels, each built once. They are not made of
// attention that is not plain, nor of an e4m3 cache, of which an element that is rounded the
// other way moves a row further than the limits of bf16 allow.
func (s *Suite) probe(subject *gate.Subject) error {
	if o := &s.Kernel.Options; !o.CanProbe() || o.Attention != "" || o.KV != attention.KVBF16 || !s.Reference.HasRows() {
		return nil
	}
	bytes := s.Kernel.ProbeBytes()
	for _, name := range []string{megakernel.BufferProbeResidual, megakernel.BufferProbeAttention} {
		if err := s.loaded.Alloc(name, bytes[name]); err != nil {
			return fmt.Errorf("buffer %s of %d bytes: %w", name, bytes[name], err)
		}
	}
	built := map[megakernel.Fault]*megakernel.Kernel{}
	subject.PlantProbe = func(ctx context.Context, fault megakernel.Fault) (restore func(), err error) {
		if built[fault] == nil {
			options := s.Kernel.Options
			options.Probe, options.Fault = true, fault
			if built[fault], err = megakernel.Build(s.Kernel.Config, options); err != nil {
				return nil, err
			}
		}
		return s.loaded.Plant(ctx, built[fault].IR)
	}
	return nil
}

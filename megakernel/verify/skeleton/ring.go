package skeleton

import (
	"fmt"

	"github.com/mkgen/mkgen/pipeline"
)

// ring is how often an SM has filled a stage in this launch.
type ring struct{ fills int }

// fill checks where a copy of bytes goes whose first byte is byte within of its chunk: to
// the stage behind that of the last chunk if the chunk begins with it, to the same one if not.
func (r *ring) fill(p *pipeline.Plan, dst string, to, bytes, within int64) error {
	if dst != pipeline.RegionRing {
		return fmt.Errorf("goes to %s, want %s", dst, pipeline.RegionRing)
	}
	if within == 0 {
		r.fills++
	}
	stage, size := (r.fills-1)%p.Stages, int64(p.StageBytes)
	if want := int64(stage)*size + within; to != want || within+bytes > size {
		return fmt.Errorf("%d bytes go to byte %d of stage %d, want byte %d of stage %d, which is next of %d of %d bytes",
			bytes, to%size, to/size, within, stage, p.Stages, size)
	}
	return nil
}

package pipeline

import "fmt"

// Names of the regions that New itself places; a request's Fixed may not use them.
const (
	RegionRing  = "ring"  // Stages × StageBytes, stage i at Offset + i*StageBytes
	RegionFull  = "full"  // Stages mbarriers of 8 bytes: a copy has landed
	RegionEmpty = "empty" // Stages mbarriers of 8 bytes: consumers have drained the stage

	RegionTilesFull = "tiles_full" // of a TileRing: mbarriers, a stage's copies have landed
)

// mbarrierBytes is the size of one mbarrier object in shared memory.
const mbarrierBytes = 8

// layout places ring, mbarriers and the fixed regions, in this order, each at its alignment.
func layout(stages, stageBytes int, fixed []Region) (regions []Region, bytes int) {
	regions = append(make([]Region, 0, 3+len(fixed)),
		Region{Name: RegionRing, Bytes: stages * stageBytes, Align: StageAlign},
		Region{Name: RegionFull, Bytes: stages * mbarrierBytes, Align: mbarrierBytes},
		Region{Name: RegionEmpty, Bytes: stages * mbarrierBytes, Align: mbarrierBytes})
	regions = append(regions, fixed...)
	for i := range regions {
		g := &regions[i]
		if g.Align == 0 {
			g.Align = 16
		}
		g.Offset = roundUp(bytes, g.Align)
		bytes = g.Offset + g.Bytes
	}
	return regions, roundUp(bytes, 16)
}

// stagesThatFit is the largest ring depth up to MaxStages that stays within limit, 0 if none does.
func stagesThatFit(stageBytes int, fixed []Region, limit int) int {
	n := 0
	for n < MaxStages {
		if _, bytes := layout(n+1, stageBytes, fixed); bytes > limit {
			break
		}
		n++
	}
	return n
}

// refuseStages says why a ring does not fit and what would, with stages large
// enough for the KV that goes through them.
func refuseStages(stages, fit, stageBytes int, r *Request) error {
	fixed, limit := r.Fixed, r.SharedLimit
	least := max(GroupBytes, roundUp(KVTokenMultiple*r.KVTokenBytes, GroupBytes))
	regions, need := layout(stages, stageBytes, fixed)
	beside := 0
	for _, g := range regions[3:] {
		beside += g.Bytes
	}
	padding := need - stages*(stageBytes+2*mbarrierBytes) - beside
	asked := fmt.Sprintf("%s of %d B + %d B fixed + %d B mbarriers and padding need %d B, have %d B",
		count(stages, "stage"), stageBytes, beside, stages*2*mbarrierBytes+padding, need, limit)
	switch smaller := stageBytesThatFit(stages, least, stageBytes, fixed, limit); {
	case fit > 0 && smaller > 0:
		return fmt.Errorf("pipeline: %s; at most %d would fit, or %s of %d B", asked, fit, count(stages, "stage"), smaller)
	case fit > 0:
		return fmt.Errorf("pipeline: %s; at most %d would fit", asked, fit)
	case smaller > 0:
		return fmt.Errorf("pipeline: %s; no stage of %d B fits, %d of %d B would", asked, stageBytes, stages, smaller)
	}
	_, needed := layout(1, least, fixed)
	if needed <= limit {
		return fmt.Errorf("pipeline: %s; %d B a stage is the least there is", asked, least)
	}
	return fmt.Errorf("pipeline: %s; not even one stage of %d B fits, that needs %d B", asked, least, needed)
}

// stageBytesThatFit is the largest stage size from least to stageBytes with which
// stages stages stay within limit, 0 if none does.
func stageBytesThatFit(stages, least, stageBytes int, fixed []Region, limit int) int {
	for size := stageBytes / GroupBytes * GroupBytes; size >= least; size -= GroupBytes {
		if _, bytes := layout(stages, size, fixed); bytes <= limit {
			return size
		}
	}
	return 0
}
